"""Fit the verdict on the zoo's training split, and write it as JSON into the package.

    python benchmarks/zoo/calibrate.py

Reads benchmarks/zoo/results/training.jsonl (from score.py). Which features, and how strongly they
are held back, is chosen by the mean log loss over architectures, each left out in turn; held-out
models are never read. Both readings of a model (R given, R estimated) count.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.linear_model import LogisticRegression

from imir_detect.circuits.verdict import AXES, FILE
from imir_detect.training.behaviour import ABSENT_BELOW, WORKS_ABOVE

RESULTS = Path(__file__).parent / "results"
MODELS = Path(__file__).parent / "models"
CHOICES = (("strength",), ("strength", "coverage"), ("strength", "nats"))
STRENGTHS = (1.0, 10.0, 100.0)  # scikit-learn's C
SLACK = 0.003  # nats of log loss that a simpler choice may cost


def table(rows: list[dict[str, Any]], axis: str, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Features, measured accuracy (0 for a task without the axis) and architecture, two a model."""
    X, y, group = [], [], []
    for row in rows:
        for reading in ("given", "estimated"):
            X.append([row[reading]["features"][f"{axis}_{name}"] for name in names])
            y.append(row["measured"].get(f"{axis}_accuracy", 0.0))
            group.append(row["architecture"])
    return np.array(X), np.array(y), np.array(group)


def fit_works(X: Any, y: Any, C: float) -> Any:
    clear = (y > WORKS_ABOVE) | (y <= ABSENT_BELOW)
    return LogisticRegression(C=C, max_iter=5000).fit(X[clear], y[clear] > WORKS_ABOVE)


def fit_accuracy(X: Any, y: Any, C: float) -> Any:
    """Fractional logistic regression: every model counts as right and wrong by its accuracy."""
    both = np.concatenate([X, X])
    wanted = np.repeat([1, 0], len(y))
    return LogisticRegression(C=C, max_iter=5000).fit(
        both, wanted, sample_weight=np.concatenate([y, 1 - y])
    )


def left_out_loss(X: Any, y: Any, group: Any, C: float) -> float:
    """Mean log loss of `works` on clear models of architectures that the fit has not seen."""
    losses = []
    for name in np.unique(group):
        out = group == name
        if len(np.unique(y[~out] > WORKS_ABOVE)) < 2:
            continue
        chance = fit_works(X[~out], y[~out], C).predict_proba(X[out])[:, 1]
        clear = (y[out] > WORKS_ABOVE) | (y[out] <= ABSENT_BELOW)
        right = np.where(y[out] > WORKS_ABOVE, chance, 1 - chance)[clear]
        losses += [-math.log(max(p, 1e-9)) for p in right]
    return float(np.mean(losses))


def as_json(model: Any, axis: str, names: tuple[str, ...]) -> dict[str, Any]:
    weights = {
        f"{axis}_{n}": round(float(w), 6) for n, w in zip(names, model.coef_[0], strict=True)
    }
    return {"bias": round(float(model.intercept_[0]), 6), "weights": weights}


def split_of(models: Path, rows: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
    """Name, size and hash of the split, and its cards."""
    cards = [json.loads((models / r["name"] / "card.json").read_text()) for r in rows]
    lines = sorted(f"{card['name']} {card['sha256']}" for card in cards)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return {"name": "training", "models": len(cards), "sha256": digest}, cards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=Path, default=RESULTS / "training.jsonl")
    parser.add_argument("--models", type=Path, default=MODELS)
    parser.add_argument("--target", type=Path, default=FILE)
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.lines.read_text().splitlines()]
    fit: dict[str, Any] = {"works": {}, "accuracy": {}}
    for axis in AXES:
        losses = {}
        for names, C in product(CHOICES, STRENGTHS):
            losses[names, C] = left_out_loss(*table(rows, axis, names), C)
            print(f"{axis} {'+'.join(names)} C={C:g}: left-out log loss {losses[names, C]:.4f}")
        # The simplest choice (the first) that is no worse than the best by more than a little.
        names, C = next(k for k in losses if losses[k] <= min(losses.values()) + SLACK)
        X, y, _ = table(rows, axis, names)
        fit["works"][axis] = as_json(fit_works(X, y, C), axis, names)
        fit["accuracy"][axis] = as_json(fit_accuracy(X, y, C), axis, names)
        print(f"{axis}: {'+'.join(names)}, C={C:g}: {fit['works'][axis]}")
    fit["split"], cards = split_of(args.models, rows)
    specs = [card["spec"] for card in cards]
    fields = {"layers": "n_layers", "heads": "n_heads", "d_model": "d_model"}
    fields |= {"vocabulary": "d_vocab", "n_ctx": "n_ctx"}
    fit["ranges"] = {
        name: [min(s[field] for s in specs), max(s[field] for s in specs)]
        for name, field in fields.items()
    }
    norms = {"rms" if s["norm"] else "none" for s in specs}
    fit["kinds"] = {"norm": sorted(norms), "mlp": sorted({bool(s["d_mlp"]) for s in specs})}
    fit["kinds"]["position_table"] = sorted({s["position"] == "standard" for s in specs})
    fit["split"]["scikit-learn"] = sklearn.__version__
    args.target.write_text(json.dumps(fit, indent=1) + "\n")


if __name__ == "__main__":
    main()
