"""How scores are judged, with the field's names and every convention stated.

Ranks: only what the labels call right or wrong is scored. `auc` is the exact area under the ROC
curve over all thresholds, ties counting half; `auc_stair` counts ties as wrong, the pessimistic
stair form of the ACDC paper. `ap` is average precision with ties counted at the end of their group.
Circuits: the k best-scored items, k the true number; precision equals recall there where all items
are labelled. Faithfulness of the k best = (m(k) - m(none)) / (m(all) - m(none)), m the mean logit
difference; CPR is the area under it against the fraction of items kept, CMD that of its distance
from 1 (MIB; absolute or signed scores as the method gives them, higher first).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from imir_detect.benchmark.cases import Case, Labels
from imir_detect.benchmark.contract import Scores
from imir_detect.benchmark.graph import PatchedModel
from imir_detect.benchmark.units import UnitModel

FRACTIONS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
DRAWS = 400  # of a bootstrap


def auc(right: np.ndarray, wrong: np.ndarray, *, ties: float = 0.5) -> float:
    """Chance that a right item scores above a wrong one; `ties`: what a tie is worth.

    >>> auc(np.array([2.0, 1.0]), np.array([1.0, 0.0])), auc(np.array([1.0]), np.array([1.0]))
    (0.875, 0.5)
    """
    above = (right[:, None] > wrong[None, :]).mean()
    equal = (right[:, None] == wrong[None, :]).mean()
    return float(above + ties * equal)


def average_precision(right: np.ndarray, wrong: np.ndarray) -> float:
    """Mean, over right items, of the precision among items that score at least as high.

    >>> average_precision(np.array([3.0, 1.0]), np.array([2.0]))
    0.8333333333333333
    """
    found = []
    for value in right:
        true = (right >= value).sum()
        found.append(true / (true + (wrong >= value).sum()))
    return float(np.mean(found))


def interval(
    statistic: Callable[[np.ndarray, np.ndarray], float],
    right: np.ndarray,
    wrong: np.ndarray,
    *,
    seed: int = 0,
) -> tuple[float, float]:
    """95 % percentile bootstrap, right and wrong items resampled apart."""
    generator = np.random.default_rng(seed)
    drawn = [
        statistic(
            generator.choice(right, len(right)),
            generator.choice(wrong, len(wrong)),
        )
        for _ in range(DRAWS)
    ]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high)


def rank_metrics(case: Case, labels: Labels, scores: Scores) -> dict[str, float]:
    """`auc`, its interval, `auc_stair`, `ap`, and those of the circuit of the true size. With
    several draws, means over them."""
    items = case.items
    right = torch.tensor([item in labels.positive for item in items])
    wrong = torch.tensor([item in labels.negative for item in items])
    draws = scores.values.reshape(-1, len(items)).double()
    rows = [_one_draw(row, right, wrong) for row in draws]
    found = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    a, b = draws[0][right].numpy(), draws[0][wrong].numpy()
    if len(draws) == 1:
        found["auc_low"], found["auc_high"] = interval(auc, a, b)
    else:
        spread = 1.96 * float(np.std([row["auc"] for row in rows])) / math.sqrt(len(rows))
        found["auc_low"], found["auc_high"] = found["auc"] - spread, found["auc"] + spread
    return found


def _one_draw(row: Tensor, right: Tensor, wrong: Tensor) -> dict[str, float]:
    a, b = row[right].numpy(), row[wrong].numpy()
    scored = right | wrong
    kept = torch.zeros_like(right)
    ranked = row.masked_fill(~scored, float("-inf")).argsort(descending=True, stable=True)
    kept[ranked[: int(right.sum())]] = True
    hits = int((kept & right).sum())
    missed, extra = int((~kept & right).sum()), int((kept & wrong).sum())
    return {
        "auc": auc(a, b),
        "auc_stair": auc(a, b, ties=0.0),
        "ap": average_precision(a, b),
        "precision": hits / max(1, int(kept.sum())),
        "recall": hits / int(right.sum()),
        "shd": float(missed + extra),
    }


def circuit_metrics(case: Case, labels: Labels, scores: Scores) -> dict[str, float]:
    """`faithfulness`, `kl` and `accuracy` of the circuit of the true size (what is not scored is
    ranked too), `cpr` and `cmd`; on prompts of their own."""
    model = case.judge
    row = scores.values.reshape(-1, len(case.items))[0]
    ranked = row.argsort(descending=True, stable=True).tolist()
    whole = _metric(model, model.full_logits)
    none = _metric(model, model.empty_logits)

    def kept(size: int) -> Tensor:
        chosen = frozenset(case.items[i] for i in ranked[:size])
        return model.run(case.mask_of(chosen))

    def faithfulness(logits: Tensor) -> float:
        return (_metric(model, logits) - none) / (whole - none) if whole != none else 0.0

    with torch.no_grad():
        logits = kept(len(labels.positive))
        curve = [faithfulness(kept(round(f * len(ranked)))) for f in FRACTIONS]
    full = model.full_logits.log_softmax(-1)
    kl = (full.exp() * (full - logits.log_softmax(-1))).sum(-1).mean()
    return {
        "faithfulness": faithfulness(logits),
        "kl": float(kl),
        "accuracy": float(model.prompts.right(logits).double().mean()),
        "cpr": float(np.trapezoid(curve, FRACTIONS)),
        "cmd": float(np.trapezoid(np.abs(1 - np.array(curve)), FRACTIONS)),
    }


def _metric(model: PatchedModel | UnitModel, logits: Tensor) -> float:
    return float(model.prompts.logit_diff(logits).mean())
