"""The null of a causal graph read from weights: rows of noise, and untrained heads.

A row's p-value says how far its largest earlier entry stands out from what independent normal
scores of any scale give. The rows of one head are no independent witnesses: a head of few
dimensions has few patterns to show, so heads are held against untrained ones of their own shape.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imir_detect._typing import Bool, Float
from imir_detect.linalg import DTYPE, ROUNDOFF

DRAWS = 2000  # null draws for every row length
HEADS = 500  # untrained heads
WIDEST = 64  # dimensions of an untrained head: with more, rows of few positions are independent
SCREEN = 0.05


def row_p_values(
    scores: Float[Tensor, "head pos pos"], *, generator: torch.Generator
) -> Float[Tensor, "head row"]:
    """P-value of the largest earlier entry of every row, from row 1 on.

    Compared is the entry's distance from the mean of the row's other entries up to the diagonal,
    in units of the row's spread without it (over all keys, later ones too), with that of rows of
    normal draws. Once on the scores and once on the scores less their column means (what every
    row gives to that key), because a preference for keys widens the rows and a parent of all nodes
    is nothing else; the two are combined by their harmonic mean (Wilson, PNAS 2019).
    """
    heads, length = scores.shape[:2]
    normal = torch.randn(DRAWS, length, dtype=DTYPE, generator=generator)
    readings = torch.stack([scores, scores - scores.mean(1, keepdim=True)])
    found = []
    for child in range(1, length):
        index = scores[:, child, :child].argmax(-1)
        rows = readings[:, :, child].reshape(2 * heads, length)
        distance = _distance(rows, index.repeat(2), child)
        null = _distance(normal, normal[:, :child].argmax(-1), child).sort().values
        above = DRAWS - torch.searchsorted(null, distance - ROUNDOFF)
        p_values = (1.0 + above) / (1 + DRAWS)
        found.append(1 / (1 / p_values).reshape(2, heads).mean(0))
    return torch.stack(found, 1)


def head_p_values(
    row_p: Float[Tensor, "head row"], d_model: int, d_head: int, *, generator: torch.Generator
) -> Float[Tensor, " head"]:
    """P-value of a head's rows taken together: of - sum log p (Fisher) among untrained heads.

    An untrained head has normal position embeddings P and normal W_Q, W_K of the model's widths
    (64 at most): scores P W_Q W_K^T P^T. Their scale plays no role. Where no head is rare even for
    independent rows, the p-values are those (chi-square), and nothing is simulated.
    """
    rows = row_p.shape[1]
    seen = -row_p.log().sum(1)
    independent = torch.special.gammaincc(torch.full_like(seen, rows), seen)
    if float(independent.min()) > SCREEN:
        return independent

    scores = _untrained(rows + 1, d_model, d_head, generator=generator)
    untrained = row_p_values(scores, generator=generator)
    null = -untrained.log().sum(1)
    return (1.0 + (null >= seen[:, None]).sum(1)) / (1 + HEADS)


def few_rows_p_values(
    scores: Float[Tensor, "head pos pos"], d_model: int, d_head: int, *, generator: torch.Generator
) -> Float[Tensor, " head"]:
    """P-value of a head in which a few rows stand out and the others are even.

    Fisher's combination asks all rows for a little; a sparse graph has few, and weights of keys
    that a row cannot see (later ones, which no training moves) widen them. So, over causal entries
    alone: the mean over rows of d^2, d a row's largest earlier entry less the mean of its others,
    in units of the spread about those means of all rows together; among untrained heads of the
    widths.
    """
    seen = _mean_square(scores)
    null = _mean_square(_untrained(scores.shape[1], d_model, d_head, generator=generator))
    return (1.0 + (null >= seen[:, None]).sum(1)) / (1 + HEADS)


def _untrained(
    length: int, d_model: int, d_head: int, *, generator: torch.Generator
) -> Float[Tensor, "head pos pos"]:
    """Scores between positions of heads whose weights are all normal."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(HEADS, *shape, dtype=DTYPE, generator=generator)

    width, rank = min(d_model, WIDEST), min(d_head, WIDEST)
    places = normal(length, width)
    queries, keys = places @ normal(width, rank), places @ normal(width, rank)
    return queries @ keys.transpose(1, 2)


def _mean_square(scores: Float[Tensor, "head pos pos"]) -> Float[Tensor, " head"]:
    length = scores.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    rows = scores[:, 1:]
    index = rows.masked_fill(~causal.tril(-1)[1:], -torch.inf).argmax(-1, keepdim=True)
    kept = causal[1:].expand_as(rows).scatter(2, index, False)
    count = kept.sum(-1)
    mean = (rows * kept).sum(-1) / count
    squares = ((rows - mean[..., None]) * kept).square().sum((-1, -2))
    spread = (squares / (count - 1).sum(-1).clamp(min=1)).sqrt().clamp(min=ROUNDOFF)
    return ((rows.gather(2, index)[..., 0] - mean) / spread[:, None]).square().mean(1)


def _distance(rows: Float[Tensor, "row pos"], index: Tensor, child: int) -> Float[Tensor, " row"]:
    """Of an entry of each row from the mean of its causal others, in units of spread."""
    kept = torch.ones_like(rows, dtype=torch.bool).scatter(1, index[:, None], False)
    mean = (rows[:, : child + 1] * kept[:, : child + 1]).sum(-1) / child
    spread = _spread_of(rows, kept).clamp(min=ROUNDOFF)
    return (rows.gather(1, index[:, None])[:, 0] - mean) / spread


def _spread_of(rows: Float[Tensor, "row pos"], kept: Bool[Tensor, "row pos"]) -> Tensor:
    """Standard deviation of each row's entries that are kept (all but one)."""
    count = rows.shape[1] - 1
    mean = (rows * kept).sum(-1, keepdim=True) / count
    return (((rows - mean).square() * kept).sum(-1) / max(count - 1, 1)).sqrt()
