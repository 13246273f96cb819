"""Sets of nodes held against every node: what stands there where the set shows the query.

The pair's term of layer 0's gradient (`causal_gradient`) with even frequencies, and its extension
to several parents: sets of k nodes against k query tokens. Chunked, so memory stays flat.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE

MOST_SETS = 50_000
HELD = 2**23  # numbers held at once
TINY = 1e-300


@dataclass(frozen=True)
class BestSet:
    """The set of earlier nodes with the largest value in a node's row.

    - `value`; `above`: its distance from the mean over all rows and sets; `error`: the standard
      error of that distance; `lead`: the smallest distance from another set of the row, in standard
      errors (infinite where there is none); `sets`: how many sets the row has.
    """

    child: int
    parents: tuple[int, ...]
    value: float
    above: float
    error: float
    lead: float
    sets: int


def earlier_sets(nodes: int, size: int) -> Int[Tensor, "set k"]:
    """All sets of `size` nodes that some node stands after, each rising.

    >>> earlier_sets(4, 2).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    count = math.comb(max(nodes - 1, 0), size)
    if count > MOST_SETS:
        raise InvalidArgumentError(
            "there are too many sets of parents to weigh",
            got=f"{count} sets of {size} among {nodes} nodes",
            wanted=f"at most {MOST_SETS}",
            todo="read fewer nodes",
        )
    if count == 0:
        return torch.empty(0, size, dtype=torch.long)
    return torch.combinations(torch.arange(nodes - 1), size)


def set_values(
    tokens: Int[Tensor, "batch pos"],
    rows: Float[Tensor, "batch symbols"],
    sets: Int[Tensor, "set k"],
) -> Float[Tensor, "node set"]:
    """S^k E[ [x_J = query] row(x_i) ] of every node i and set J, k = the number of query tokens.

    `rows`: the target row of the query, or a one-hot draw from it. Sets of one are pairs of nodes.
    """
    return _values(tokens, rows.to(DTYPE), sets)


def best_sets(
    tokens: Int[Tensor, "batch pos"],
    rows: Float[Tensor, "batch symbols"],
    sets: Int[Tensor, "set k"],
) -> tuple[list[BestSet], Float[Tensor, "node set"]]:
    """The best earlier set of every node that has one, and the values of all.

    Here rows are less their mean over nodes, a constant: it moves all values alike, and they vary
    less. Values of sets that do not stand before the node are NaN.
    """
    rows = rows.to(DTYPE)
    n, k = len(tokens), sets.shape[1]
    if not len(sets):
        return [], torch.empty(tokens.shape[1] - k, 0, dtype=DTYPE)
    rows = rows - rows.gather(1, tokens[:, :-k]).mean()
    values = _values(tokens, rows, sets)
    before = sets[:, -1] < torch.arange(len(values))[:, None]
    values[~before] = torch.nan
    children = before.any(1).nonzero()[:, 0]
    index = values[children].nan_to_num(nan=-torch.inf).argmax(1)
    scale = float(rows.shape[1] ** k)
    moments = torch.zeros(2, len(children), dtype=DTYPE)
    second = torch.zeros(len(children), len(sets), dtype=DTYPE)
    for said, shown, matching in _chunks(tokens, rows, sets):
        own = scale * said[:, children] * shown[:, index]
        mean_pair = scale * (said * matching).sum(1, keepdim=True) / before.sum()
        moments += torch.stack([(own - mean_pair).sum(0), (own - mean_pair).square().sum(0)])
        square = (scale * said[:, children]).square()
        mine = square * shown[:, index]  # (own - other)^2 = square (mine + shown - 2 both)
        second += mine.sum(0)[:, None] + (square - 2 * mine).T @ shown
    above, error = _mean_and_error(moments[0], moments[1], n)
    lead = values[children, index][:, None] - values[children]
    its_error = ((second / n - lead.square()).clamp(min=0) / n).sqrt().clamp(min=TINY)
    z = (lead / its_error).nan_to_num(nan=torch.inf)
    z.scatter_(1, index[:, None], torch.inf)
    found = [
        BestSet(
            child=int(child),
            parents=tuple(sets[index[at]].tolist()),
            value=float(values[child, index[at]]),
            above=float(above[at]),
            error=float(error[at]),
            lead=float(z[at].min()),
            sets=int(before[child].sum()),
        )
        for at, child in enumerate(children)
    ]
    return found, values


def _values(tokens: Tensor, rows: Tensor, sets: Tensor) -> Float[Tensor, "node set"]:
    k = sets.shape[1]
    total = torch.zeros(tokens.shape[1] - k, len(sets), dtype=DTYPE)
    for said, shown, _ in _chunks(tokens, rows, sets):
        total += said.T @ shown
    return total * rows.shape[1] ** k / len(tokens)


def _chunks(
    tokens: Tensor, rows: Tensor, sets: Tensor
) -> Iterator[tuple[Tensor, Float[Tensor, "batch set"], Float[Tensor, "batch node"]]]:
    """Per chunk of sequences: the row at every node's token, which sets show the query, and how
    many of those stand before every node."""
    k = sets.shape[1]
    size = max(64, HELD // max(len(sets), tokens.shape[1]))
    for start in range(0, len(tokens), size):
        x = tokens[start : start + size]
        nodes = x[:, :-k]
        shown = torch.ones(len(x), len(sets), dtype=DTYPE)
        matching = torch.ones(nodes.shape, dtype=DTYPE)
        for m in range(k):
            same = (nodes == x[:, -k + m, None]).to(DTYPE)
            shown *= same[:, sets[:, m]]
            ended = same * matching  # sets of m + 1 that end at the node
            matching = ended.cumsum(1) - ended
        yield rows[start : start + size].gather(1, nodes), shown, matching


def _mean_and_error(total: Tensor, squares: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The mean over n sequences, and its standard error."""
    mean = total / n
    return mean, ((squares / n - mean.square()).clamp(min=0) / max(n - 1, 1)).sqrt()
