#!/usr/bin/env bash
# An environment of its own for auto-circuit 1.0.1, the outside implementation whose scores the
# tests hold ours against. It states no licence, so it is called and never copied or depended on.
#
#     bash benchmarks/leaderboard/oracle_env.sh FOLDER      # about five minutes and 1.5 GB
#     FOLDER/bin/python benchmarks/leaderboard/oracle_scores.py tests/unit/benchmark/data
set -euo pipefail
FOLDER=${1:?where to make the environment}
PYTHON=${PYTHON:-python3}
"$PYTHON" -m venv "$FOLDER"
"$FOLDER/bin/pip" install --quiet --disable-pip-version-check \
  'torch==2.13.0' 'transformer-lens==2.18.0' 'auto-circuit==1.0.1' 'pyarrow==21.0.0' setuptools
"$FOLDER/bin/python" -c 'import auto_circuit, transformer_lens, torch; print(torch.__version__)'
