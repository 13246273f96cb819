"""Forty recall models of varied recipe: trained, measured, and then detected from weights.

    python benchmarks/recall_models.py train  --split audit --folder runs/recall   # resumable
    python benchmarks/recall_models.py score  --split audit --folder runs/recall

The development split was looked at while the detector was written, and each of the others after
its first score, which found a kind of miss each time (see docs/detection.md); a new name and number
in SPLITS makes a split that nobody has seen. No two share a seed. `score` prints one row a model
(behaviour measured, label with the relation given and without it) and writes
benchmarks/results/recall_models_SPLIT.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
AXES = ("icl_accuracy", "iwl_accuracy")
KINDS = {"icl": 11, "iwl": 10, "mixed": 11, "none": 8}
# First seed of each split; recipes are drawn from it, so that no two splits share any.
SPLITS = {
    "development": 100,
    "held-out": 7100,
    "final": 9100,
    "audit": 12100,
    "check": 15100,
    "check-2": 16100,
}


@dataclass(frozen=True)
class Recipe40:
    """One of the forty: the label its recipe aims at, task knobs, architecture, training."""

    name: str
    aim: str
    task: dict[str, Any]
    spec: dict[str, Any]
    recipe: dict[str, Any]


def grid(split: str) -> list[Recipe40]:
    """The split's recipes, drawn with its own seed."""
    rng = random.Random(SPLITS[split])
    made = []
    for aim, count in KINDS.items():
        for index in range(count):
            made.append(_draw(aim, f"{split}-{aim}-{index:02d}", rng))
    return made


def _draw(aim: str, name: str, rng: random.Random) -> Recipe40:
    norm = rng.choice([None, None, "LN", "RMS"])
    heads = rng.choice([1, 2, 3, 4])
    width = rng.choice([32, 48, 64, 96])
    blocks = rng.choice([4, 6, 8])
    seed = rng.randrange(10**6)
    recipe: dict[str, Any] = {"seed": seed, "rate": 3e-3, "steps": 4000}
    if norm is not None:
        recipe = {**recipe, "rate": 1e-3, "steps": 6000}
    if aim == "icl":
        both = rng.random() < 0.4
        task = {"rare_frequency": 0.5 if both else 1.0, "variability": 0.5 if both else 0.0}
        task |= {"n_common": 32 if both else 0, "n_rare": rng.choice([32, 48, 64])}
        recipe["stop_at"] = {"icl_accuracy": 0.98}
    elif aim == "iwl":
        task = {"rare_frequency": 0.0, "n_rare": 0, "n_common": rng.choice([32, 48, 64])}
        task |= {"present": rng.choice([0.2, 0.5, 0.5]), "directed": rng.random() < 0.3}
        recipe["stop_at"] = {"iwl_accuracy": 0.98}
    elif aim == "mixed":
        heads, width = max(heads, 2), max(width, 64)
        task = {"rare_frequency": 0.85, "n_common": 32, "n_rare": 32, "present": 0.5}
        recipe["stop_at"] = {"icl_accuracy": 0.97, "iwl_accuracy": 0.97}
        recipe["steps"] += 3000
    else:
        task = {"rare_frequency": 0.5, "n_common": 32, "n_rare": 32}
        trained = rng.random() < 0.4
        task |= {"label_noise": 1.0 if trained else 0.0}
        recipe |= {"steps": 600 if trained else 1, "warmup": 50 if trained else 10**9}
    task["n_blocks"] = blocks
    task["zipf"] = rng.choice([0.0, 0.0, 1.0])
    if aim == "icl":
        task["burstiness"] = rng.choice([1, 1, 1, 2])
        if rng.random() < 0.3:
            task |= {"offsets": "disjoint", "positions": 3 * blocks + 6}
    # Heads of fewer than 32 dimensions match 64 tokens poorly; width need not be their sum.
    spec = {"n_heads": heads, "d_model": width, "d_head": max(32, width // heads), "norm": norm}
    if aim == "none":
        spec["init_range"] = rng.choice([None, 0.1, 0.3, 1.0])
    return Recipe40(name, aim, task, spec, recipe)


def train_one(item: Recipe40, folder: Path) -> None:
    import torch

    from imir_detect.tasks import make_task
    from imir_detect.training.loop import Recipe, describe, evaluate, train
    from imir_detect.weights.native import ModelSpec
    from imir_detect.weights.store import save_model

    warnings.simplefilter("ignore")
    home = folder / item.name
    if (home / "card.json").exists():
        return
    torch.set_num_threads(1)
    task = make_task("recall", **item.task)
    spec = ModelSpec(task.vocab_size, task.n_positions, **item.spec)
    run = train(task, spec, Recipe(**item.recipe), folder=home, progress=False)
    measured = evaluate(run.model, task, n=4096)
    card = {
        "name": item.name,
        "aim": item.aim,
        "task": describe(task),
        "recipe": item.recipe,
        "measured": measured,
        "steps": run.history[-1]["step"] if run.history else 0,
    }
    save_model(run.model, spec, home, card)
    (home / "checkpoint.safetensors").unlink(missing_ok=True)
    print(item.name, {k: round(v, 3) for k, v in measured.items()}, flush=True)


def score(items: list[Recipe40], folder: Path, target: Path) -> None:
    from imir_detect import detect_circuits, load_model
    from imir_detect.tasks import make_task
    from imir_detect.training.behaviour import measured_label

    warnings.simplefilter("ignore")
    rows = []
    for item in items:
        model, card = load_model(folder / item.name)
        relation = make_task("recall", **item.task).relation
        row: dict[str, Any] = {"model": item.name, "aim": item.aim}
        row |= {"measured": measured_label(card["measured"])}
        row |= {axis: round(card["measured"].get(axis, 0.0), 3) for axis in AXES}
        row |= {k: item.spec[k] for k in ("n_heads", "d_model", "norm")}
        for name, given in (("given", relation), ("estimated", None)):
            report = detect_circuits(model, relation=given)
            row[f"label_{name}"] = report.label
            for kind in ("induction", "in_weights"):
                found = [c.strength for c in report.circuits if c.kind == kind]
                row[f"{kind}_{name}"] = round(max(found, default=0.0), 3)
        rows.append(row)
        print(row, flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    summarise(rows)


def summarise(rows: list[dict[str, Any]]) -> None:
    """Counts by measured label, misses of the recipes, and agreement on the unambiguous ones."""
    clear = [row for row in rows if row["measured"] != "ambiguous"]
    for label in (*KINDS, "ambiguous"):
        print(f"measured {label}: {sum(row['measured'] == label for row in rows)}")
    missed = [row["model"] for row in rows if row["measured"] != row["aim"]]
    print(f"recipes that missed their target: {len(missed)} of {len(rows)} {missed}")
    for name in ("given", "estimated"):
        right = sum(row[f"label_{name}"] == row["measured"] for row in clear)
        print(f"relation {name}: {right} of {len(clear)} unambiguous models get the measured label")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["train", "score", "list"])
    parser.add_argument("--split", choices=sorted(SPLITS), default="audit")
    parser.add_argument("--folder", type=Path, default=Path("runs/recall"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--aim", choices=sorted(KINDS), help="only the recipes of one aim")
    args = parser.parse_args()
    items = [item for item in grid(args.split) if args.aim in (None, item.aim)]
    if args.action == "list":
        for item in items:
            print(json.dumps(asdict(item)))
    elif args.action == "train":
        from joblib import Parallel, delayed

        Parallel(n_jobs=args.workers)(delayed(train_one)(item, args.folder) for item in items)
    else:
        name = args.split if args.aim is None else f"{args.split}_{args.aim}"
        score(items, args.folder, RESULTS / f"recall_models_{name}.csv")


if __name__ == "__main__":
    main()
