"""What every comparison needs: random scores below, the truth itself above."""

from __future__ import annotations

import zlib

import torch

from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.contract import Budget, Scores, everything, method


@method(
    "random", about="uniform random scores, mean of many draws", sees="nothing", supports=everything
)
def random(case: Case, *, budget: Budget) -> Scores:
    """Ten times `budget.draws` draws of one score an item, others for every case."""
    seed = zlib.crc32(f"{case.name} {budget.seed}".encode())
    generator = torch.Generator().manual_seed(seed)
    return Scores(torch.rand(10 * budget.draws, len(case.items), generator=generator))


@method("truth", about="the labels themselves", sees="truth", supports=everything)
def truth(case: Case, *, budget: Budget) -> Scores:
    """1 for what is right, 0 for the rest."""
    assert case.labels is not None
    return Scores(torch.tensor([float(item in case.labels.positive) for item in case.items]))
