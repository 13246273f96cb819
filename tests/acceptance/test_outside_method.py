"""A method that the package has never heard of, written in ten lines, is scored end to end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import imir_detect

OUTSIDE = '''\
import torch
from imir_detect.benchmark.contract import Scores

def score(case, *, budget):
    """How far each edge's source is from what the ablation delivers."""
    model = case.patched(budget.samples, seed=budget.seed)
    size = (model.clean - model.reference).pow(2).sum((1, 2, 3)).sqrt()
    order = {source: i for i, source in enumerate(["embed", *case.weights.heads])}
    return Scores(case.to_items(torch.stack([size[order[e.source]] for e in case.edges])),
                  forwards=model.forwards)
'''


def test_ten_lines_are_scored_from_the_command_line(tmp_path: Path) -> None:
    assert len([line for line in OUTSIDE.splitlines() if line]) <= 10
    (tmp_path / "outside.py").write_text(OUTSIDE)
    # As the installed script starts it: the folder that it runs in is not on Python's path.
    start = "import sys; sys.path.pop(0); from imir_detect.cli import main; main()"
    command = [sys.executable, "-c", start, "bench", "run", "previous/zero/edge"]
    command += ["--method", "outside:score", "--method", "truth", "--samples", "16"]
    command += ["--folder", "bench"]
    home = str(Path(imir_detect.__file__).parents[1])
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": home},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "| outside:score |" in done.stdout
    rows = json.loads((tmp_path / "bench" / "rows.json").read_text(encoding="utf-8"))
    by = {row["method"]: row for row in rows}
    assert (by["outside:score"]["status"], by["truth"]["auc"]) == ("ok", 1.0)
    assert 0 < by["outside:score"]["auc"] < 1
    assert (tmp_path / "bench" / "rows.parquet").exists()
