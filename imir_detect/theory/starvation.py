"""Theorem 2: a standing in-weights circuit starves the in-context one.

With delta on R, the population gradient of alpha and beta is its value at delta = 0 times about
f_r + (1 - f_r) f_v, the share of sequences that R does not answer (the paper, section 5). That is
the limit of delta far above ln V; at finite delta a query that R answers keeps 1 - p of its
gradient, so the factor is

    f_r + (1 - f_r) [f_v + (1 - f_v) (1 - p)],   p = e^delta / (e^delta + V - 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from imir_detect.tasks.base import Task
from imir_detect.theory.assumptions import require
from imir_detect.theory.reduced import Reduced, gradient

Row = dict[str, float | str]


def starvation_factor(
    rare_frequency: float, variability: float, delta: float = math.inf, vocab: int = 0
) -> float:
    """The factor above; with infinite delta the theorem's limit.

    >>> starvation_factor(0.5, 0.5)
    0.75
    """
    solved = 1.0 if math.isinf(delta) else 1 / (1 + (vocab - 1) * math.exp(-delta))
    return rare_frequency + (1 - rare_frequency) * (variability + (1 - variability) * (1 - solved))


def starvation(
    task: Task,
    *,
    deltas: Sequence[float] = (4.0, 8.0, 12.0),
    point: tuple[float, float, float] = (0.1, 0.1, 0.1),
    n: int = 16384,
    chunks: int = 16,
    seed: int = 0,
) -> list[Row]:
    """Gradient ratios at (alpha, beta, gamma) = `point`, with and without delta, on the same data.

    One row per delta and coordinate: `limit` and `finite` (predictions), `measured`, `error` (the
    jackknife standard error over `chunks`). Needs consecutive recall of uniform tokens with an
    undirected R, no noise, the answer always in context, once.
    """
    recall = require(
        "theorem 2 (starvation)",
        task,
        offsets="consecutive",
        zipf=0.0,
        label_noise=0.0,
        present=1.0,
        burstiness=1,
        directed=False,
    )
    g = torch.Generator().manual_seed(seed)
    batches = [recall.sample(n // chunks, generator=g) for _ in range(chunks)]
    relation = recall.relation

    def gradients(delta: float) -> torch.Tensor:
        at = Reduced.of(*point, delta)
        return torch.stack([gradient(at, batch, relation) for batch in batches])

    base = gradients(0.0)
    rows: list[Row] = []
    for delta in deltas:
        found = gradients(delta)
        for index, name in enumerate(("alpha", "beta", "gamma")):
            top, bottom = found[:, index], base[:, index]
            left_out = (top.sum() - top) / (bottom.sum() - bottom)
            spread = (left_out - left_out.mean()).square().sum() * (chunks - 1) / chunks
            rows.append(
                {
                    "rare_frequency": recall.rare_frequency,
                    "variability": recall.variability,
                    "delta": delta,
                    "coordinate": name,
                    "limit": starvation_factor(recall.rare_frequency, recall.variability),
                    "finite": starvation_factor(
                        recall.rare_frequency, recall.variability, delta, recall.vocab_size
                    ),
                    "measured": float(top.sum() / bottom.sum()),
                    "error": float(spread.sqrt()),
                }
            )
    return rows
