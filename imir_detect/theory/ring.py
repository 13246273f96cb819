"""Positions on a ring: blocks never collide, and the law is exactly invariant under rotation."""

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
