"""Sequences of k-hop induction, as integers: all that Algorithm 1's models are trained on.

n items are drawn from the vocabulary and joined by a random permutation pi, one cycle if not said
otherwise. The sequence holds the n blocks [x pi(x)] in random order and then one item q; the answer
is pi applied `hops` times to q. Lexinvariant: items and pi are drawn anew for every sequence. With
a vocabulary below 2 n a shortcut over the absent tokens is learned instead, so it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from imir_detect._typing import Int
from imir_detect.errors import InvalidArgumentError

Permutation = Literal["cycle", "derangement", "any"]


@dataclass(frozen=True)
class HopSequences:
    """`sample(n, generator)` gives tokens (n, 2 n_items + 1), answers (n), positions or None.

    `query_never_first`: the query's block is not the first one. `spread`: blocks stand at
    random places, no two of them neighbours, so that "one back" never
    leaves a block and only distances inside a block carry meaning; else positions are
    consecutive, and the token after an item's second showing misleads. `permutation`: pi is one
    cycle of all items, any permutation without fixed points, or any at all, each equally likely.

    >>> HopSequences(n_items=4, vocab=8).length
    9
    """

    n_items: int = 6
    vocab: int = 12
    hops: int = 2
    query_never_first: bool = False
    spread: bool = True
    permutation: Permutation = "cycle"

    def __post_init__(self) -> None:
        if self.vocab < 2 * self.n_items or not 1 <= self.hops < self.n_items:
            raise InvalidArgumentError(
                "k-hop needs spare tokens and fewer hops than items",
                got=f"n_items={self.n_items}, vocab={self.vocab}, hops={self.hops}",
                wanted="vocab of at least 2 n_items, 1 <= hops < n_items",
                todo="raise vocab or n_items",
            )
        if self.permutation not in get_args(Permutation):
            raise InvalidArgumentError(
                "k-hop knows no such permutation",
                got=repr(self.permutation),
                wanted=" or ".join(map(repr, get_args(Permutation))),
                todo="pass one of these",
            )

    @property
    def length(self) -> int:
        return 2 * self.n_items + 1

    @property
    def n_positions(self) -> int:
        return 4 * (self.n_items + 1) if self.spread else self.length

    def sample(
        self, n: int, generator: torch.Generator
    ) -> tuple[
        Int[torch.Tensor, "n pos"], Int[torch.Tensor, " n"], Int[torch.Tensor, "n pos"] | None
    ]:
        """n sequences, their answers and their positions."""

        def order(size: int) -> torch.Tensor:
            return torch.rand(n, size, generator=generator).argsort(1)

        items = order(self.vocab)[:, : self.n_items]
        place = order(self.n_items)  # the block at place j starts with item place[j]
        lowest = int(self.query_never_first)
        after = self._successors(n, generator)
        asked = torch.randint(lowest, self.n_items, (n, 1), generator=generator)
        query = found = place.gather(1, asked)
        for _ in range(self.hops):
            found = after.gather(1, found)
        blocks = torch.stack([place, after.gather(1, place)], -1).flatten(1)
        tokens = items.gather(1, torch.cat([blocks, query], 1))
        answer = items.gather(1, found)[:, 0]
        if not self.spread:
            return tokens, answer, None
        # Sorted distinct starts of n + 1 blocks, each with two positions to itself and one empty;
        # blocks take them in random order.
        count = self.n_items + 1
        free = order(self.n_positions - 2 * count)[:, :count].sort(1).values
        starts = (free + 2 * torch.arange(count)).gather(1, order(count))
        places = starts.repeat_interleave(2, 1)[:, : self.length] + torch.arange(self.length) % 2
        return tokens, answer, places

    def _successors(self, n: int, generator: torch.Generator) -> Int[torch.Tensor, "n item"]:
        """pi of every sequence, on the items' numbers; fixed points are drawn again."""
        own = torch.arange(self.n_items).expand(n, -1)
        if self.permutation == "cycle":
            return (own + 1) % self.n_items
        after = torch.rand(n, self.n_items, generator=generator).argsort(1)
        while self.permutation == "derangement" and bool((fixed := (after == own).any(1)).any()):
            again = torch.rand(int(fixed.sum()), self.n_items, generator=generator).argsort(1)
            after[fixed] = again
        return after
