"""Detection on the text models that `text_model.py` trained, against their measured attention.

    python benchmarks/text_models.py [MODEL ...] [--route both] [--seed 0] [--out FILE.csv]

MODEL: folders that `imir-detect detect` takes; default, all under `benchmarks/text_models/`. Each
model goes both routes, whatever its size: all paths summed, and extended embeddings. Predicted
attention of every head is scored against `repeated_attention` as in `examples/02`: AUROC and
average precision for the heads that measurably attend more than 0.3, and the correlation over all
heads. Nothing is set for any model.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from imir_detect import open_model
from imir_detect.behaviour import repeated_attention
from imir_detect.circuits.probe import Probe
from imir_detect.result import Table
from imir_detect.routes import deep_route, exact_route, too_deep
from imir_detect.weights.read import read_weights

HOME = Path(__file__).parent / "text_models"
SCORES = ("induction", "previous_token", "duplicate_token")
POSITIVE = 0.3
LONGEST = 64
ROUTES = {"extended": deep_route, "exact": exact_route}


def agreement(predicted: list[float], measured: list[float]) -> dict[str, float | int | None]:
    """How predicted attention ranks the heads that measurably attend; None where it cannot."""
    x, y = np.array(predicted), np.array(measured)
    positive = y > POSITIVE
    both = 0 < positive.sum() < len(y)
    return {
        "positive": int(positive.sum()),
        "auroc": float(roc_auc_score(positive, x)) if both else None,
        "average_precision": float(average_precision_score(positive, x)) if both else None,
        "correlation": float(np.corrcoef(x, y)[0, 1]),
    }


def intact(folder: Path) -> bool | None:
    """Whether the weights are those that the card tells; None without a card."""
    if not (folder / "recipe.json").exists():
        return None
    told = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))["weights_sha256"]
    return told == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def rows_of(folder: Path, seed: int, routes: list[Any]) -> list[dict[str, Any]]:
    if intact(folder) is False:
        raise SystemExit(f"{folder}: the weights are not those of the card")
    model = open_model(folder)
    weights = read_weights(model)
    measured = repeated_attention(model, seed=seed)
    context = min(weights.n_ctx, LONGEST)
    probe = Probe(weights, torch.arange(weights.vocab_size), context, seed=seed)
    taken = "extended embeddings" if too_deep(weights, context) else "all paths summed"
    rows = []
    for route in routes:
        found = route(model, probe, None)
        heads = Table.of(type(found.heads[0]), found.heads)
        print(f"\n{folder.name}, {found.route}{' (its own)' if found.route == taken else ''}")
        for circuit in found.circuits:
            print(f"  {circuit}")
        for score in SCORES:
            row = {
                "model": folder.name,
                "route": found.route,
                "own_route": found.route == taken,
                "heads": len(heads),
                "score": score,
                **agreement(heads.column(score), measured.column(score)),
            }
            print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()})
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--route", choices=["both", *ROUTES], default="both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    folders = arguments.models or sorted(f.parent for f in HOME.glob("*/recipe.json"))
    routes = list(ROUTES.values()) if arguments.route == "both" else [ROUTES[arguments.route]]
    rows = [row for folder in folders for row in rows_of(folder, arguments.seed, routes)]
    if arguments.out is not None:
        with arguments.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
