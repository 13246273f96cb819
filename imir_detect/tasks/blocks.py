"""Draws that block-list tasks share: orders, Zipf preferences, where blocks stand, positions.

The same seed gives the same data on every platform and torch version (golden hashes hold it), so
only three draws are used, always from a CPU generator: integers below 2^28, float32 `rand` and
float64 `rand`. `exponential_`, `normal_`, `multinomial` and `randperm` are not: their streams
depend on MKL, on vector width or on the version. Sorts are stable, so that ties do not depend on
the sorting algorithm. Finished batches move to a device with `Batch.to`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from imir_detect._typing import Bool, Int

Offsets = Literal["consecutive", "random", "disjoint"]
OFFSETS: tuple[Offsets, ...] = ("consecutive", "random", "disjoint")


def random_order(n: int, size: int, *, generator: torch.Generator) -> Int[Tensor, "n size"]:
    """n independent uniform permutations of 0 .. size - 1."""
    return torch.rand(n, size, generator=generator).argsort(dim=1, stable=True)


def prefer_zipf(
    n: int, size: int, exponent: float, *, generator: torch.Generator
) -> Int[Tensor, "n size"]:
    """n orders of 0 .. size - 1, drawn without replacement with weights (index + 1)^-exponent.

    The first entries of a row are the chosen ones; exponent 0 is uniform. An exponential race:
    entry i arrives at -log(u_i) / weight_i, and the earliest come first.
    """
    if exponent == 0:
        return random_order(n, size, generator=generator)
    uniform = torch.rand(n, size, generator=generator, dtype=torch.float64)
    arrival = -torch.log(uniform) * torch.arange(1, size + 1, dtype=torch.float64) ** exponent
    return arrival.argsort(dim=1, stable=True)


def place_query(
    n: int,
    n_blocks: int,
    burstiness: int,
    shown: Bool[Tensor, " n"],
    *,
    never_first: bool,
    generator: torch.Generator,
) -> Int[Tensor, "n n_blocks"]:
    """Which block stands at each place: 0 is the query's, in `burstiness` places where shown.

    Other places hold blocks 1, 2, ... in random order. With `never_first`, place 0 is not the
    query's; it then always holds the last of the blocks, which is right where blocks 1, 2, ...
    are drawn alike. Where they are not, use `place_unlike_blocks`.
    """
    key = torch.rand(n, n_blocks, generator=generator)
    if never_first:
        key[:, 0] = 2.0
    rank = key.argsort(dim=1, stable=True).argsort(dim=1)
    with_query = (rank - (burstiness - 1)).clamp(min=0)
    return torch.where(shown[:, None], with_query, rank + 1)


def place_unlike_blocks(
    n: int, n_blocks: int, burstiness: int, *, never_first: bool, generator: torch.Generator
) -> Int[Tensor, "n n_blocks"]:
    """`place_query` with the query's block shown, for other blocks that are not drawn alike."""
    shown = torch.ones(n, dtype=torch.bool)
    block = place_query(
        n, n_blocks, burstiness, shown, never_first=never_first, generator=generator
    )
    if not never_first:
        return block
    others = 1 + random_order(n, n_blocks - burstiness, generator=generator)
    return torch.cat([torch.zeros(n, 1, dtype=torch.long), others], dim=1).gather(1, block)


def sample_positions(
    n: int,
    lengths: Sequence[int],
    n_positions: int,
    offsets: Offsets,
    *,
    generator: torch.Generator,
) -> Int[Tensor, "n pos"] | None:
    """Position indices of blocks of the given lengths; None when they are consecutive.

    "random": every block starts at an independent uniform position, blocks may collide.
    "disjoint": positions are cut into cells of the longest block's length, blocks take different
    cells at random, and one shift, common to all, moves the cells.
    """
    if offsets == "consecutive":
        return None
    longest, blocks = max(lengths), len(lengths)
    if offsets == "random":
        starts = torch.randint(n_positions - longest + 1, (n, blocks), generator=generator)
    else:
        spare = n_positions - blocks * longest
        cells = (n_positions - min(spare, longest - 1)) // longest
        starts = longest * random_order(n, cells, generator=generator)[:, :blocks]
        slack = n_positions - cells * longest
        starts = starts + torch.randint(slack + 1, (n, 1), generator=generator)
    inside = torch.cat([torch.arange(length) for length in lengths])
    return starts.repeat_interleave(torch.tensor(lengths), dim=1) + inside


def zipf_tokens(
    shape: tuple[int, ...], size: int, exponent: float, *, generator: torch.Generator
) -> Int[Tensor, ...]:
    """Independent tokens 0 .. size - 1 with frequencies proportional to (index + 1)^-exponent."""
    if exponent == 0:
        return torch.randint(size, shape, generator=generator)
    weights = torch.arange(1, size + 1, dtype=torch.float64) ** -exponent
    edges = weights.cumsum(0) / weights.sum()
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    return torch.bucketize(uniform, edges, right=True).clamp(max=size - 1)
