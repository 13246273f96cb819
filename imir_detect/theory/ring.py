"""Positions on a ring: blocks never collide, and the law is exactly invariant under rotation.

`ring_positions` gives blocks cells of two positions each, so that in a small ring the parity of a
distance tells keys from values. `spread_positions` puts them anywhere, so that only distances
inside a block carry meaning, as the theory's independent offsets have it; it needs a larger ring.
"""

from __future__ import annotations

import torch

from imir_detect._typing import Int
from imir_detect.errors import InvalidArgumentError


def ring_positions(
    n: int, n_blocks: int, n_positions: int, *, generator: torch.Generator
) -> Int[torch.Tensor, "n pos"]:
    """Positions of n sequences of `n_blocks` pairs and one single token.

    Each block takes a cell of two neighbouring positions, all cells different and in random order;
    the whole ring is then turned by a uniform offset.
    """
    if n_positions % 2 or n_positions < 2 * (n_blocks + 1):
        raise InvalidArgumentError(
            "the ring must hold a cell of two positions for every block and the query",
            got=f"{n_positions} positions for {n_blocks} blocks",
            wanted=f"an even number of at least {2 * n_blocks + 2}",
            todo="raise n_positions",
        )
    length = 2 * n_blocks + 1
    cells = torch.rand(n, n_positions // 2, generator=generator).argsort(1)
    starts = 2 * cells[:, : n_blocks + 1].repeat_interleave(2, 1)[:, :length]
    turn = torch.randint(n_positions, (n, 1), generator=generator)
    return (starts + torch.arange(length) % 2 + turn) % n_positions


def spread_positions(
    n: int, n_blocks: int, n_positions: int, *, generator: torch.Generator
) -> Int[torch.Tensor, "n pos"]:
    """The same with blocks at any places that do not overlap, all arrangements equally likely.

    The blocks stand on the ring in random order, with the free positions dealt out at random
    between them. The query takes two positions as well, one of them empty.
    """
    count = n_blocks + 1
    if n_positions < 2 * count:
        raise InvalidArgumentError(
            "the ring must hold two positions for every block and the query",
            got=f"{n_positions} positions for {n_blocks} blocks",
            wanted=f"at least {2 * count}",
            todo="raise n_positions",
        )

    def order(size: int) -> torch.Tensor:
        return torch.rand(n, size, generator=generator).argsort(1)

    # Choose which of (positions - count) slots are blocks; each block then takes one more.
    slots = order(n_positions - count)[:, :count].sort(1).values
    starts = (slots + torch.arange(count)).gather(1, order(count))
    turn = torch.randint(n_positions, (n, 1), generator=generator)
    length = 2 * n_blocks + 1
    inside = torch.arange(length) % 2
    return (starts.repeat_interleave(2, 1)[:, :length] + inside + turn) % n_positions
