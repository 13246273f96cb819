"""Effect, cosine, z and spread of a selection on a factored score table, from small matrices.

The table is S = A B^T with A (N, r) the query rows and B (N, r) the key rows of N tokens; it is
never built. With both sides centred over tokens (S_c), for a selection that pairs token i with
partner(i) (i itself for the identity):

- effect (nats): mean of S_c on the selection minus its mean off the selection.
- cosine: <S_c, C_c> / (|S_c| |C_c|), both double-centred; its square is the share explained.
- z: <S_c, C> over its standard deviation under a random relabelling of the key rows, which is
  exact: |M_c| / sqrt(N - 1) with M = C^T S_c, M_c centred over tokens (Hoeffding 1951). For the
  identity M = S_c, so z = (N - 1) cosine.
- spread (nats): standard deviation of S_c off the selection.

The formulas for the identity are Elhage et al.'s (2021) composition traces made a contrast; the
generalisation to a partial relation is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.linalg import DTYPE, clamp_roundoff

TINY = 1e-150  # below this squared norm a table is zero for every purpose


@dataclass(frozen=True)
class Reading:
    """One selection read on one table. `z` is None where no permutation null is defined."""

    effect: float
    cosine: float
    z: float | None
    spread: float


ZERO = Reading(0.0, 0.0, 0.0, 0.0)


def read_selection(
    A: Float[Tensor, "vocab rank"],
    B: Float[Tensor, "vocab rank"],
    partner: Int[Tensor, " vocab"] | None = None,
) -> Reading:
    """The reading of the identity, or of the relation `partner` (-1: none), on S = A B^T.

    Zero tables and empty relations read as zeros. Cost: O(N r^2), memory O(N r).

    >>> eye = torch.eye(4, dtype=torch.float64)
    >>> read_selection(3 * eye, eye).effect
    3.0
    """
    n = A.shape[0]
    if n < 2:
        return ZERO
    A, B = A - A.mean(0), B - B.mean(0)
    gram_b = B.T @ B
    norm2 = float((A.T @ A * gram_b).sum())
    named = torch.arange(n) if partner is None else (partner >= 0).nonzero()[:, 0]
    if norm2 <= TINY or len(named) == 0:
        return ZERO
    to = named if partner is None else partner[named]
    on = (A[named] * B[to]).sum(1)
    total = float(on.sum())
    off_count = n * n - len(named)
    off_mean = -total / off_count
    off_square = (norm2 - float(on.pow(2).sum())) / off_count
    spread = max(0.0, off_square - off_mean**2) ** 0.5
    counts = torch.bincount(to, minlength=n).double()
    selection2 = (
        len(named) - len(named) / n - float(counts.pow(2).sum()) / n + len(named) ** 2 / n**2
    )
    # Query rows summed by the key row they are paired with: M = gathered B^T.
    gathered = torch.zeros_like(A).index_add_(0, to, A[named])
    gathered = gathered - gathered.mean(0)
    null2 = float((gathered.T @ gathered * gram_b).sum()) / (n - 1)
    share = total / (norm2 * selection2) ** 0.5 if selection2 > 0 else 0.0
    cosine = torch.tensor(share, dtype=DTYPE)
    return Reading(
        effect=total / len(named) - off_mean,
        cosine=float(clamp_roundoff(cosine, -1, 1, what="a cosine")),
        z=total / null2**0.5 if null2 > TINY else 0.0,
        spread=spread,
    )


def read_shift(S: Float[Tensor, "pos pos"], offset: int) -> Reading:
    """The reading of "offset back" on a dense table of positions, over the causal triangle.

    effect: mean of S[i, i - offset] minus the mean of the triangle's other entries. The cosine is
    taken after the mean of every row of the triangle is removed, from the table and from the
    selection alike, since a softmax ignores it. There is no permutation null: z is None.
    """
    size = S.shape[0]
    if size <= offset:
        return Reading(0.0, 0.0, None, 0.0)
    triangle = torch.ones(size, size, dtype=torch.bool).tril()
    selected = torch.zeros_like(triangle)
    index = torch.arange(offset, size)
    selected[index, index - offset] = True
    off = S[triangle & ~selected]
    effect = float(S[selected].mean() - off.mean()) if off.numel() else 0.0
    rows = triangle.sum(1, keepdim=True)
    parts = []
    for table in (S, selected.to(S.dtype)):
        centred = table - (table * triangle).sum(1, keepdim=True) / rows
        parts.append(centred[triangle])
    norm = parts[0].norm() * parts[1].norm()
    cosine = parts[0] @ parts[1] / norm if norm > 0 else S.new_zeros(())
    spread = float(off.std(correction=0)) if off.numel() else 0.0
    return Reading(effect, float(clamp_roundoff(cosine, -1, 1, what="a cosine")), None, spread)
