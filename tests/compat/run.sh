#!/usr/bin/env bash
# The subset of the tests that users of older TransformerLens generations rest on: each generation in
# an environment of its own, built once per lock in a folder that this script makes.
#   tests/compat/run.sh PYTHON    PYTHON: an interpreter with the current library, for the reference
set -euo pipefail
cd "$(dirname "$0")/../.."
REFERENCE=$(command -v "${1:-python3}")
HOME_OF_ENVS="${IMIR_COMPAT_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/imir-detect/compat}"
REPORTS=$(mktemp -d)
trap 'rm -rf "$REPORTS"' EXIT

environment() { # name -> path of an environment that its lock describes
  local lock="tests/compat/$1.txt" key
  key=$(sha256sum "$lock" | cut -c1-12)
  local folder="$HOME_OF_ENVS/$1-$key"
  if [ ! -e "$folder/.ready" ]; then
    rm -rf "$folder"
    mkdir -p "$HOME_OF_ENVS"
    python3 -m venv "$folder"
    "$folder/bin/pip" install --quiet --disable-pip-version-check -r "$lock" >&2
    touch "$folder/.ready"
  fi
  echo "$folder"
}

PYTHONPATH=. "$REFERENCE" tests/compat/reports.py write "$REPORTS"
for name in lens-3.9 lens-2.18; do
  folder=$(environment "$name")
  echo "== $name: $("$folder/bin/python" -c 'import importlib.metadata as m; print(m.version("transformer-lens"))')"
  PYTHONPATH=. "$folder/bin/python" tests/compat/reports.py check "$REPORTS"
  PYTHONPATH=. "$folder/bin/python" -m pytest -q -p no:cacheprovider tests/compat
done
