"""Comparing two training runs: when each emerges, and whether one is the other at another speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

Row: TypeAlias = dict[str, float]
# (number of sequences, generator) -> tokens, answers at the last position, positions or None
Sample: TypeAlias = Callable[[int, torch.Generator], tuple[Tensor, Tensor, Tensor | None]]


def emergence_step(
    history: Sequence[Row], *, key: str = "probability", level: float = 0.5
) -> float:
    """First step at which `key` passes `level`, linear between records; inf where it never does.

    Judged by the answer's probability, not by argmax: ties make accuracy rise at once.

    >>> emergence_step([{"step": 0, "probability": 0.0}, {"step": 10, "probability": 1.0}])
    5.0
    """
    for a, b in pairwise(history):
        if a[key] < level <= b[key]:
            share = (level - a[key]) / (b[key] - a[key])
            return a["step"] + share * (b["step"] - a["step"])
    return float("inf")


@dataclass(frozen=True)
class Stretch:
    """`factor`: how much slower the first run is; `correlation` of the two curves after that."""

    factor: float
    correlation: float
    raw_correlation: float


def time_stretch(slow: Sequence[Row], fast: Sequence[Row], *, key: str = "loss") -> Stretch:
    """The one factor s for which slow(s t) follows fast(t) most closely (Pearson), s in [1/4, 4].

    Compared on the times of `fast` whose stretched time `slow` has reached; factors that leave
    less than half of them are not tried.
    """
    t_slow, y_slow = _curve(slow, key)
    t_fast, y_fast = _curve(fast, key)
    best = (0.0, -1.0)
    for factor in np.geomspace(0.25, 4.0, 401):
        inside = t_fast * factor <= t_slow[-1]
        if inside.mean() < 0.5:
            continue
        found = _pearson(np.interp(t_fast[inside] * factor, t_slow, y_slow), y_fast[inside])
        if found > best[1]:
            best = (float(factor), found)
    raw = _pearson(np.interp(t_fast, t_slow, y_slow), y_fast)
    return Stretch(best[0], best[1], raw)


def _curve(history: Sequence[Row], key: str) -> tuple[np.ndarray, np.ndarray]:
    return np.array([r["step"] for r in history]), np.array([r[key] for r in history])


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    if a.std() == 0 or b.std() == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])
