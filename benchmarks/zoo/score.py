"""Read models of a split from their weights, and set what was read beside what was measured.

    python benchmarks/zoo/score.py --split fresh --models benchmarks/zoo/models

One JSON line a model is written to benchmarks/zoo/results/SPLIT.jsonl as it goes, and skips what
is there; the tables are made from these lines by `benchmarks/zoo/tables.py`. Models come in a
shuffled order (seeded), so that a run that was stopped has read a sample.
"""

from __future__ import annotations

import argparse
import json
import random
import warnings
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
MODELS = Path(__file__).parent / "models"


def read_one(folder: Path) -> dict[str, Any]:
    """One model: its card's measurements, and two readings (R given by the task, R estimated)."""
    from imir_detect import detect_circuits
    from imir_detect.weights.store import load_model
    from imir_detect.zoo.cards import task_of

    model, card = load_model(folder)
    model.eval()
    task = task_of(card)
    row = {k: card[k] for k in ("name", "split", "architecture", "aim", "label", "measured")}
    row |= {"task": task.name, "heads_measured": card["heads"]}
    readings = {"estimated": None}
    if task.relation is not None and (task.relation >= 0).any():
        readings["given"] = task.relation
    for name, relation in readings.items():
        report = detect_circuits(model, relation=relation)
        row[name] = {
            "label": report.label,
            "probabilities": report.probabilities,
            "predicted": report.meta["predicted_accuracy"],
            "features": report.meta["features"],
            "circuits": [[c.kind, round(c.strength, 4), c.coverage.share] for c in report.circuits],
            "roles": report.heads.column("role"),
            "attention": [
                [round(h[k], 4) for k in ("previous_token", "duplicate_token", "induction")]
                for h in report.heads
            ],
        }
    row.setdefault("given", row["estimated"])
    return row


def _scored(file: Path) -> set[str]:
    """Models that have a row; half a line, left by a kill, is taken away."""
    from imir_detect.files import write_atomically

    if not file.exists():
        return set()
    whole = [line for line in file.read_text().splitlines(True) if line.endswith("\n")]
    write_atomically(file, "".join(whole).encode())
    return {json.loads(line)["name"] for line in whole}


def read(splits: list[str], models: Path, target: Path | None, most: int | None) -> None:
    warnings.simplefilter("ignore")
    cards = [json.loads(file.read_text()) for file in sorted(models.glob("*/card.json"))]
    chosen = [card for card in cards if card["split"] in splits]
    random.Random(11).shuffle(chosen)
    for card in chosen[:most]:
        file = target or RESULTS / f"{card['split']}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        if card["name"] in _scored(file):
            continue
        row = read_one(models / card["name"])
        with file.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(row["name"], row["label"], row["given"]["label"], row["estimated"]["label"])


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", required=True, nargs="+")
    parser.add_argument("--models", type=Path, default=MODELS)
    parser.add_argument("--target", type=Path, help="one file for all lines")
    parser.add_argument("--most", type=int, help="models to read at most")
    args = parser.parse_args()
    torch.set_num_threads(1)
    read(args.split, args.models, args.target, args.most)


if __name__ == "__main__":
    main()
