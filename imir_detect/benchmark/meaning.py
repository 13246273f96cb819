"""Whether a method's scores mean the same on every model: negative controls and calibration.

Ranks within one model say nothing of this. Two conventions, the same for every method, whatever
the scale of its scores:

- *Controls.* A control has no circuit; its twin, asked the same, has one. `detection`: chance that
  the highest score on a model with the circuit exceeds that on a control (ties half; 0.5: the
  method cannot tell). `false_share`: share of a control's items that score at least as high as the
  twin's lowest score within its circuit of the true size, the cut that one would carry over.
- *Calibration.* Scores of all other models give a chance of being in the circuit by isotonic
  regression; it is tried on the model left out. `ece`: expected calibration error over ten bins of
  equal width; `brier`; `pooled_auc`: area over the items of all models together. Controls take
  part, with every item wrong.

Read from rows alone (`item_scores`, `item_labels`); edges only; random draws and the truth stay in
as floor and ceiling.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from imir_detect.benchmark.metrics import auc

Row = dict[str, Any]
BINS = 10


def item_scores(row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels (1 right, 0 wrong) of a row's items; those not scored left out."""
    scores = np.array([float(text) for text in row["item_scores"].split()])
    marks = np.array(list(row["item_labels"]))
    kept = marks != "."
    return scores[kept], (marks[kept] == "+").astype(float)


def controls(rows: Iterable[Row]) -> list[Row]:
    """One row a method and kind of control ("all" among them): method, kind, controls (how many),
    detection, false_share; best detection first."""
    twins: dict[tuple[str, str], Row] = {}
    found: dict[tuple[str, str], list[Row]] = {}
    for row in _edges(rows):
        if row["source"] == "control":
            for kind in (row["kind"], "all"):
                found.setdefault((row["method"], kind), []).append(row)
        else:
            twins[row["method"], row["case"]] = row
    table: list[Row] = []
    for (method, kind), members in found.items():
        pairs = [(twins.get((method, row["twin"])), row) for row in members]
        known = [(twin, row) for twin, row in pairs if twin is not None]
        if known:
            cuts = [(_cut(twin), item_scores(row)[0]) for twin, row in known]
            tops = [np.array([row["top"] for row in side]) for side in zip(*known, strict=True)]
            table.append(
                {
                    "method": method,
                    "kind": kind,
                    "controls": len(known),
                    "detection": auc(*tops),
                    "false_share": float(np.mean([(s >= cut).mean() for cut, s in cuts])),
                }
            )
    return sorted(table, key=lambda r: (r["kind"], -r["detection"], r["false_share"], r["method"]))


def _cut(row: Row) -> float:
    """The lowest score within a row's circuit of the true size."""
    scores, labels = item_scores(row)
    return float(np.sort(scores)[::-1][int(labels.sum()) - 1])


def calibration(rows: Iterable[Row]) -> list[Row]:
    """One row a method: method, cases, items, ece, brier, pooled_auc; best ECE first."""
    by_method: dict[str, list[Row]] = {}
    for row in _edges(rows):
        by_method.setdefault(row["method"], []).append(row)
    table = []
    for method, members in by_method.items():
        pairs = [item_scores(row) for row in members]
        model = np.concatenate(
            [np.full(len(s), i) for (s, _), i in zip(pairs, _models(members), strict=True)]
        )
        scores, labels = (np.concatenate(side) for side in zip(*pairs, strict=True))
        if len(set(model)) < 2 or len(set(labels)) < 2:
            continue
        chance = _held_out(scores, labels, model)
        table.append(
            {
                "method": method,
                "cases": len(members),
                "items": len(scores),
                "ece": expected_error(chance, labels),
                "brier": float(((chance - labels) ** 2).mean()),
                "pooled_auc": auc(scores[labels == 1], scores[labels == 0]),
            }
        )
    return sorted(table, key=lambda row: (row["ece"], row["method"]))


def expected_error(chance: np.ndarray, labels: np.ndarray) -> float:
    """Expected calibration error: mean distance of a bin's share of right items from its mean
    chance, bins weighed by their items.

    >>> expected_error(np.array([0.5, 0.5, 1.0]), np.array([1.0, 0.0, 1.0]))
    0.0
    """
    place = np.minimum((chance * BINS).astype(int), BINS - 1)
    gaps = [
        abs(float((chance - labels)[place == i].sum())) for i in range(BINS) if (place == i).any()
    ]
    return sum(gaps) / len(chance)


def _held_out(scores: np.ndarray, labels: np.ndarray, model: np.ndarray) -> np.ndarray:
    """Every item's chance of being right, from the scores of all other models."""
    from sklearn.isotonic import IsotonicRegression

    chance = np.zeros_like(scores)
    for one in sorted(set(model)):
        held = model == one
        fit = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        chance[held] = fit.fit(scores[~held], labels[~held]).predict(scores[held])
    return chance


def _models(rows: list[Row]) -> list[int]:
    """A number for each row's model; a control counts with its twin."""
    names = [row["model"].split("~")[0] for row in rows]
    order = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return [order[name] for name in names]


def _edges(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["status"] == "ok" and row["granularity"] == "edge"]
