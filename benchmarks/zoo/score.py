"""Read every model of a split from its weights, and set what was read beside what was measured.

    python benchmarks/zoo/score.py --split training --models benchmarks/zoo/models

One JSON line a model is written to benchmarks/zoo/results/SPLIT.jsonl as it goes, and skips what
is there; the tables are made from these lines by `benchmarks/zoo/tables.py`.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
MODELS = Path(__file__).parent / "models"


def read_one(folder: Path) -> dict[str, Any]:
    """One model: its card's measurements, and two readings (R given by the task, R estimated)."""
    from imir_detect import detect_circuits
    from imir_detect.circuits.verdict import features
    from imir_detect.tasks import make_task
    from imir_detect.weights.store import load_model
    from imir_detect.zoo.roles import head_measures

    model, card = load_model(folder)
    model.eval()
    task = make_task(card["task"]["name"], **card["task"]["knobs"])
    row = {k: card[k] for k in ("name", "split", "architecture", "aim", "label", "measured")}
    row |= {"task": task.name, "heads_measured": head_measures(model, task)}
    readings = {"estimated": None}
    if task.relation is not None and (task.relation >= 0).any():
        readings["given"] = task.relation
    for name, relation in readings.items():
        report = detect_circuits(model, relation=relation)
        row[name] = {
            "label": report.label,
            "probabilities": report.probabilities,
            "features": features(report.circuits),
            "circuits": [[c.kind, round(c.strength, 4), c.coverage.share] for c in report.circuits],
            "roles": report.heads.column("role"),
            "attention": [
                [round(h[k], 4) for k in ("previous_token", "duplicate_token", "induction")]
                for h in report.heads
            ],
        }
    row.setdefault("given", row["estimated"])
    return row


def read(split: str, models: Path, target: Path) -> None:
    from imir_detect.files import write_atomically

    warnings.simplefilter("ignore")
    target.parent.mkdir(parents=True, exist_ok=True)
    done = set()
    if target.exists():
        whole = [line for line in target.read_text().splitlines(True) if line.endswith("\n")]
        write_atomically(target, "".join(whole).encode())  # a kill may have left half a line
        done = {json.loads(line)["name"] for line in whole}
    for card in sorted(models.glob("*/card.json")):
        if card.parent.name in done or json.loads(card.read_text())["split"] != split:
            continue
        row = read_one(card.parent)
        with target.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(row["name"], row["label"], row["given"]["label"], row["estimated"]["label"])


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", required=True)
    parser.add_argument("--models", type=Path, default=MODELS)
    parser.add_argument("--target", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    read(args.split, args.models, args.target or RESULTS / f"{args.split}.jsonl")


if __name__ == "__main__":
    main()
