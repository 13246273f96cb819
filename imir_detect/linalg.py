"""The numeric policy: one place for dtype, tolerances, rank and the treatment of round-off.

Analysis runs in float64 on the CPU. A quantity that must lie in a range (a cosine, a share) may
leave it by round-off only: `clamp_roundoff` takes that much back and raises on more, because a
cosine of 1.01 is a mistake somewhere and not a number to print.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imir_detect.errors import ImirError, InvalidWeightsError

DTYPE = torch.float64
ROUNDOFF = 1e-9  # how far float64 sums over a vocabulary may stray, relative to their scale


def to_analysis(tensor: Tensor) -> Tensor:
    """A detached float64 CPU copy that shares no memory with `tensor`.

    >>> to_analysis(torch.ones(2, dtype=torch.bfloat16)).dtype
    torch.float64
    """
    if not tensor.is_floating_point():
        raise InvalidWeightsError(
            "a weight is not a floating-point tensor",
            got=str(tensor.dtype),
            wanted="float16, bfloat16, float32 or float64",
            todo="dequantise the model before analysing it",
        )
    return tensor.detach().to(device="cpu", dtype=DTYPE, copy=True)


def not_finite(tensor: Tensor) -> int:
    """How many entries are NaN or infinite. A finite sum clears a whole tensor in one pass; only
    where it is not finite are the entries looked at.

    >>> not_finite(torch.tensor([1.0, float("nan"), float("inf")]))
    2
    """
    if not tensor.is_floating_point():
        return 0
    wide = torch.float32 if tensor.element_size() < 4 else tensor.dtype
    if bool(torch.isfinite(tensor.sum(dtype=wide))):
        return 0
    return int((~torch.isfinite(tensor)).sum())


def rank_tolerance(matrix: Tensor) -> float:
    """Singular values below max(shape) * eps * largest count as zero (LAPACK's usual rule)."""
    eps = torch.finfo(matrix.dtype).eps
    return max(matrix.shape[-2:]) * eps


def effective_rank(matrix: Tensor) -> int:
    """Number of singular values above `rank_tolerance` times the largest; 0 for a zero matrix."""
    values = torch.linalg.svdvals(matrix)
    if values.numel() == 0 or values[0] == 0:
        return 0
    return int((values > rank_tolerance(matrix) * values[0]).sum())


def clamp_roundoff(value: Tensor, low: float, high: float, *, what: str) -> Tensor:
    """`value` clamped to [low, high], where it strays by at most `ROUNDOFF`; otherwise an error.

    >>> float(clamp_roundoff(torch.tensor(1.0 + 1e-12, dtype=DTYPE), -1, 1, what="cosine"))
    1.0
    """
    excess = float(torch.maximum(value - high, low - value).max()) if value.numel() else 0.0
    if not excess <= ROUNDOFF:
        raise ImirError(
            f"{what} lies outside its range by more than round-off",
            got=f"an excess of {excess:.3g}",
            wanted=f"values in [{low}, {high}]",
            todo="report this as a bug, with the model if you can",
        )
    return value.clamp(low, high)
