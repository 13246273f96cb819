"""Theorem 3: where distractors dominate, the in-context gradient grows with burstiness b.

At the origin attention is uniform and only gamma has a gradient: b of T tokens carry the answer,
so it is proportional to b / T - 1 / V, and g(b) / g(1) = (b V - T) / (V - T) exactly. At small
positive coordinates alpha's and beta's grow about as b while b is far below n; on a developed
circuit, or where b nears n, they saturate. (The paper, section 5; the exact form is ours.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks.base import Task
from imir_detect.theory.assumptions import require
from imir_detect.theory.reduced import Reduced, gradient

Row = dict[str, float | str]


def gamma_ratio(burstiness: int, vocab: int, length: int) -> float:
    """(b V - T) / (V - T): gamma's gradient at the origin against that of b = 1.

    >>> gamma_ratio(2, 129, 129 - 1)
    130.0
    """
    return (burstiness * vocab - length) / (vocab - length)


def burstiness(
    task: Task,
    *,
    values: Sequence[int] = (1, 2, 4, 8),
    point: tuple[float, float, float] = (0.1, 0.1, 0.1),
    n: int = 8192,
    chunks: int = 8,
    seed: int = 0,
) -> list[Row]:
    """g(b) / g(1) for gamma at the origin and for alpha and beta at `point`.

    One row per coordinate and b: `predicted` ((b V - T) / (V - T) for gamma, b for the others),
    `measured`, `error` (standard error of the ratio from chunks), `slope` (least squares of
    log g on log b over all `values`).
    """
    recall = require(
        "theorem 3 (burstiness)",
        task,
        offsets="consecutive",
        zipf=0.0,
        label_noise=0.0,
        present=1.0,
    )
    if min(values) < 1 or max(values) >= recall.n_blocks:
        raise InvalidArgumentError(
            "theorem 3 (burstiness) needs distractors",
            got=f"b = {max(values)} of {recall.n_blocks} blocks",
            wanted="1 <= b < n_blocks",
            todo="lower b or raise n_blocks",
        )
    origin = Reduced.of()
    at = Reduced.of(*point)
    found = {}
    for index, b in enumerate(values):
        bursty = replace(recall, burstiness=b)
        g = torch.Generator().manual_seed(1000 * seed + index)
        parts = []
        for _ in range(chunks):
            batch = bursty.sample(n // chunks, generator=g)
            here = gradient(at, batch, recall.relation)
            parts.append(
                torch.stack([here[0], here[1], gradient(origin, batch, recall.relation)[2]])
            )
        found[b] = torch.stack(parts)
    rows: list[Row] = []
    for index, name in enumerate(("alpha", "beta", "gamma at the origin")):
        means = {b: float(g[:, index].mean()) for b, g in found.items()}
        errors = {
            b: float(g[:, index].std()) / math.sqrt(chunks) / abs(means[b])
            for b, g in found.items()
        }
        slope = _slope([math.log(b) for b in values], [math.log(abs(means[b])) for b in values])
        for b in values:
            ratio = means[b] / means[values[0]]
            predicted = gamma_ratio(b, recall.vocab_size, recall.length) if index == 2 else float(b)
            rows.append(
                {
                    "coordinate": name,
                    "burstiness": b,
                    "predicted": predicted,
                    "measured": ratio,
                    "error": ratio * math.hypot(errors[b], errors[values[0]]),
                    "slope": slope,
                }
            )
    return rows


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    mx, my = sum(x) / len(x), sum(y) / len(y)
    top = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    return top / sum((a - mx) ** 2 for a in x)
