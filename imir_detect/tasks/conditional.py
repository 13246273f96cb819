"""Conditional retrieval: blocks [condition key value]; the same key has a value per condition."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.tasks.base import Batch
from imir_detect.tasks.blocks import Offsets, place_unlike_blocks, random_order
from imir_detect.tasks.checks import (
    Rule,
    at_least,
    enough_rare,
    placed_blocks,
    placed_query,
    require,
    right_types,
    shares,
)
from imir_detect.tasks.family import BlockTask
from imir_detect.tasks.keyed import ask_for, keyed_batch, keyed_law
from imir_detect.tasks.labels import (
    ExpectedCircuit,
    Symmetry,
    induction,
    permutations_of,
)


@dataclass(frozen=True)
class ConditionalRetrieval(BlockTask):
    """Blocks [condition key value], then condition and key; the answer is their value.

    Every key of a sequence stands once under every condition, with a value of its own; matching
    the key alone is right one time in `conditions`.

    - `conditions`: tokens 0 .. conditions - 1, the same in all sequences; keys and values are
      rare tokens, drawn anew for each.
    - `n_blocks`: complete blocks; those that are not repeats of the query's (`burstiness` of
      them) must be a multiple of `conditions`.
    - `label_noise`, `offsets`, `positions`, `query_never_first`: as in recall.

    >>> ConditionalRetrieval(n_blocks=6, conditions=3).n_keys
    2
    """

    conditions: int = 2
    n_blocks: int = 8
    n_rare: int = 64
    burstiness: int = 1
    label_noise: float = 0.0
    offsets: Offsets = "consecutive"
    positions: int | None = None
    query_never_first: bool = False

    name = "conditional"

    def __post_init__(self) -> None:
        require(self.name, right_types(self))
        require(self.name, at_least(self, conditions=2, n_blocks=1))
        require(
            self.name,
            [
                placed_query(self),
                Rule(
                    self.slots % self.conditions == 0,
                    f"{self.slots} different blocks with conditions={self.conditions}",
                    "every key under every condition: a multiple of conditions",
                    "change n_blocks by a few",
                ),
                enough_rare(self, self.n_keys + self.slots, "keys, and a value for every block"),
                *shares(self, "label_noise"),
                *placed_blocks(self),
            ],
        )

    @property
    def slots(self) -> int:
        """Different blocks."""
        return self.n_blocks - self.burstiness + 1

    @property
    def n_keys(self) -> int:
        """Different keys."""
        return self.slots // self.conditions

    @property
    def n_fixed(self) -> int:
        return self.conditions

    @property
    def block_lengths(self) -> tuple[int, ...]:
        return (*[3] * self.n_blocks, 2)

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        swaps = permutations_of([range(self.conditions)], self.vocab_size)
        return (*super().symmetries, Symmetry("conditions", "token", swaps))

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        return (induction(2),)

    def draw(self, n: int, *, generator: torch.Generator) -> Batch:
        return self.pairs(n, generator=generator)[0]

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """Clean sequences, and the same ones asked for the same key under another condition."""
        g = generator
        tokens = random_order(n, self.n_rare, generator=g)
        slot = torch.arange(self.slots)
        shift = torch.randint(self.conditions, (n, 1), generator=g)
        condition = (slot + shift) % self.conditions
        key = tokens[:, slot // self.conditions] + self.n_fixed
        keys = torch.stack([condition, key], dim=-1)
        values = tokens[:, self.n_keys : self.n_keys + self.slots] + self.n_fixed
        block = place_unlike_blocks(
            n, self.n_blocks, self.burstiness, never_first=self.query_never_first, generator=g
        )
        clean = keyed_batch(keys, values, block, self.place(n, generator=g))
        return clean, ask_for(clean, keys[:, 1], values[:, 1], 3)

    def last_law(self, batch: Batch) -> Float[Tensor, "n vocab"]:
        return keyed_law(batch, 2, torch.ones(self.vocab_size, dtype=torch.bool))

    def token_name(self, token: int) -> str:
        return f"if{token}" if token < self.conditions else f"r{token - self.conditions}"
