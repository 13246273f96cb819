"""Fit the verdict on models that were looked at, and write it as JSON into the package.

    python benchmarks/zoo/calibrate.py

Reads benchmarks/zoo/results/looked-at.jsonl (from score.py: models of the splits `training`,
`development` and `held-out`, all of which were looked at while the detector was mended). Models of
some architectures and of some tasks are kept out of the fit, and only tell how well it carries
over. Which features, and how strongly they are held back, is chosen by the mean log loss over the
fit's architectures, each left out in turn. Fresh models are never read. Both readings of a model
(R given, R estimated) count.
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
LINES = RESULTS / "looked-at.jsonl"
# What the fit does not see: two architectures, and a task on all architectures.
KEPT_OUT = ("rotary", "tied", "k_hop")
CHOICES = (
    ("strength",),
    ("strength_odds",),
    ("matched_odds",),
    ("strength_odds", "matched_odds"),
    ("strength_odds", "coverage"),
)
ACCURACY = (("wins",), ("wins_odds",), ("wins_odds", "strength"), ("wins_odds", "strength_odds"))
STRENGTHS = (1.0, 10.0, 100.0)  # scikit-learn's C
SLACK = 0.005  # nats of log loss that a simpler choice may cost
Row = dict[str, Any]


def divide(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The models of the fit, and those kept out of it."""
    out = [row for row in rows if {row["architecture"], row["task"]} & set(KEPT_OUT)]
    return [row for row in rows if row not in out], out


def table(rows: list[Row], axis: str, names: tuple[str, ...], *, every: bool) -> tuple[Any, ...]:
    """Features, measured accuracy and architecture, two rows a model; with `every`, models of tasks
    without the axis too (accuracy 0)."""
    X, y, group = [], [], []
    for row in rows:
        if not every and f"{axis}_accuracy" not in row["measured"]:
            continue
        for reading in ("given", "estimated"):
            X.append([row[reading]["features"][f"{axis}_{name}"] for name in names])
            y.append(row["measured"].get(f"{axis}_accuracy", 0.0))
            group.append(row["architecture"])
    return np.array(X), np.array(y), np.array(group)


def clear(y: Any) -> Any:
    return (y > WORKS_ABOVE) | (y <= ABSENT_BELOW)


def fit_works(X: Any, y: Any, C: float) -> Any:
    kept = clear(y)
    return LogisticRegression(C=C, max_iter=5000).fit(X[kept], y[kept] > WORKS_ABOVE)


def fit_accuracy(X: Any, y: Any, C: float) -> Any:
    """Fractional logistic regression: every model counts as right and wrong by its accuracy."""
    both = np.concatenate([X, X])
    wanted = np.repeat([1, 0], len(y))
    return LogisticRegression(C=C, max_iter=5000).fit(
        both, wanted, sample_weight=np.concatenate([y, 1 - y])
    )


def log_loss(chance: Any, y: Any) -> Any:
    inside = np.clip(chance, 1e-9, 1 - 1e-9)
    return -(y * np.log(inside) + (1 - y) * np.log(1 - inside))


def left_out_loss(fit: Any, X: Any, y: Any, group: Any, C: float) -> float:
    """Mean log loss on the architectures that a fit has not seen; of `works`, on clear models."""
    losses: list[float] = []
    for name in np.unique(group):
        out = group == name
        if len(np.unique(y[~out] > WORKS_ABOVE)) < 2:
            continue
        chance = fit(X[~out], y[~out], C).predict_proba(X[out])[:, 1]
        if fit is fit_works:
            losses += list(log_loss(chance, y[out] > WORKS_ABOVE)[clear(y[out])])
        else:
            losses += list(log_loss(chance, y[out]))
    return float(np.mean(losses))


def choose(rows: list[Row], axis: str, fit: Any, choices: Any) -> dict[str, Any]:
    """The simplest choice (the first) that is no worse than the best by more than a little."""
    every = fit is fit_works
    losses = {}
    for names, C in product(choices, STRENGTHS):
        losses[names, C] = left_out_loss(fit, *table(rows, axis, names, every=every), C)
        print(f"{fit.__name__} {axis} {'+'.join(names)} C={C:g}: {losses[names, C]:.4f}")
    names, C = next(k for k in losses if losses[k] <= min(losses.values()) + SLACK)
    X, y, _ = table(rows, axis, names, every=every)
    model = fit(X, y, C)
    weights = {
        f"{axis}_{n}": round(float(w), 6) for n, w in zip(names, model.coef_[0], strict=True)
    }
    found = {"bias": round(float(model.intercept_[0]), 6), "weights": weights}
    print(f"{fit.__name__} {axis}: {found}")
    return found


def carries_over(fit: dict[str, Any], rows: list[Row]) -> None:
    """How a fit does on models kept out of it."""

    def value(part: str, axis: str, features: dict[str, float]) -> float:
        own = fit[part][axis]
        x = own["bias"] + sum(w * features[n] for n, w in own["weights"].items())
        return 1 / (1 + math.exp(-x))

    for reading in ("given", "estimated"):
        known = [r for r in rows if r["label"] != "ambiguous"]
        right = 0
        for row in known:
            icl, iwl = (value("works", axis, row[reading]["features"]) > 0.5 for axis in AXES)
            named = {(True, True): "mixed", (True, False): "icl", (False, True): "iwl"}
            right += named.get((icl, iwl), "none") == row["label"]
        text = [f"kept out, R {reading}: label {right} of {len(known)}"]
        for axis in AXES:
            own = [r for r in rows if f"{axis}_accuracy" in r["measured"]]
            gaps = [
                abs(
                    value("accuracy", axis, r[reading]["features"])
                    - r["measured"][f"{axis}_accuracy"]
                )
                for r in own
            ]
            text.append(f"{axis} within 0.1 {sum(g <= 0.1 for g in gaps)} of {len(gaps)}")
        print("; ".join(text))


def split_of(models: Path, rows: list[Row]) -> tuple[dict[str, Any], list[Any]]:
    """Name, size and hash of the split, and its cards."""
    cards = [json.loads((models / r["name"] / "card.json").read_text()) for r in rows]
    lines = sorted(f"{card['name']} {card['sha256']}" for card in cards)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return {"name": "training", "models": len(cards), "sha256": digest}, cards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=Path, default=LINES)
    parser.add_argument("--models", type=Path, default=MODELS)
    parser.add_argument("--target", type=Path, default=FILE)
    args = parser.parse_args()
    rows, kept_out = divide([json.loads(line) for line in args.lines.read_text().splitlines()])
    fit: dict[str, Any] = {"works": {}, "accuracy": {}}
    for axis in AXES:
        fit["works"][axis] = choose(rows, axis, fit_works, CHOICES)
        fit["accuracy"][axis] = choose(rows, axis, fit_accuracy, ACCURACY)
    carries_over(fit, kept_out)
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
