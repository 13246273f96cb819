"""In-context n-grams: blocks of n tokens; the first n - 1 of one recur, the last is asked.

The keys of one sequence are made of few tokens (stems), so that single tokens of a key stand in
several blocks and only the whole key tells which block is meant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.tasks.base import Axis, Batch, Ceiling
from imir_detect.tasks.blocks import Offsets, place_query, random_order
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
from imir_detect.tasks.labels import ExpectedCircuit, induction

MOST_KEYS = 4096  # keys that the stems may spell; one sequence draws its keys among them


@dataclass(frozen=True)
class InContextNGram(BlockTask):
    """Blocks of n tokens, then the first n - 1 of one again; the answer is its last.

    Tokens are rare throughout: every sequence makes its own n-grams.

    - `block_length`: n, from 2 (recall) to 4. `n_blocks`: complete blocks.
    - `stems`: tokens of which a sequence spells its keys; None: as few as leave at least twice
      the keys needed (for n = 2: one for each block).
    - `present`: chance that the context holds the query's block; where it does not, the answer
      is uniform over the tokens that the sequence does not show.
    - `burstiness`, `label_noise`, `offsets`, `positions`, `query_never_first`: as in recall.

    >>> task = InContextNGram(block_length=3, n_blocks=2)
    >>> task.length, task.n_stems
    (8, 2)
    """

    block_length: int = 3
    n_blocks: int = 8
    n_rare: int = 64
    stems: int | None = None
    present: float = 1.0
    burstiness: int = 1
    label_noise: float = 0.0
    offsets: Offsets = "consecutive"
    positions: int | None = None
    query_never_first: bool = False

    name = "ngram"

    def __post_init__(self) -> None:
        require(self.name, right_types(self))
        require(self.name, at_least(self, n_blocks=1, burstiness=1))
        require(
            self.name,
            [
                Rule(
                    2 <= self.block_length <= 4,
                    f"block_length={self.block_length}",
                    "2, 3 or 4",
                    "use recall or k_hop for other blocks",
                ),
                placed_query(self),
                *shares(self, "present", "label_noise"),
            ],
        )
        spelled = self.n_stems**self.width
        require(
            self.name,
            [
                Rule(
                    self.slots <= spelled <= MOST_KEYS,
                    f"stems={self.n_stems}, which spell {spelled} keys of {self.width} tokens",
                    f"{self.slots} .. {MOST_KEYS} keys",
                    "change stems",
                ),
                enough_rare(
                    self,
                    self.n_stems + self.slots + (self.present < 1),
                    "the stems, a value for every block, one to be surprised by",
                ),
                *placed_blocks(self),
            ],
        )

    @property
    def width(self) -> int:
        """Tokens of a key."""
        return self.block_length - 1

    @property
    def slots(self) -> int:
        """Different blocks that one draw needs."""
        return self.n_blocks + (self.present < 1)

    @property
    def n_stems(self) -> int:
        if self.stems is not None:
            return self.stems
        if self.width == 1:
            return self.slots
        return next(s for s in range(2, 2 * self.slots + 2) if s**self.width >= 2 * self.slots)

    @property
    def block_lengths(self) -> tuple[int, ...]:
        return (*[self.block_length] * self.n_blocks, self.width)

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        return (induction(self.width),)

    def draw(self, n: int, *, generator: torch.Generator, present: float | None = None) -> Batch:
        return self._draw(n, self.present if present is None else present, generator)[0]

    def probe(self, axis: Axis, n: int, *, generator: torch.Generator) -> Batch | None:
        """`icl`: the answer is in the context, once: of a block that stands twice the value is the
        one that repeats, which a model can find without looking at the query."""
        if axis == "iwl":
            return None
        return replace(self, burstiness=1).draw(n, generator=generator, present=1.0)

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """Clean sequences, and the same ones asked for another block's key."""
        other = Rule(
            self.n_blocks > self.burstiness,
            f"n_blocks={self.n_blocks}, burstiness={self.burstiness}",
            "a block that is not the query's",
            "raise n_blocks or lower burstiness",
        )
        require(self.name, [other])
        clean, keys, values = self._draw(n, 1.0, generator)
        return clean, ask_for(clean, keys[:, 1], values[:, 1], self.block_length)

    def _draw(
        self, n: int, present: float, generator: torch.Generator
    ) -> tuple[Batch, Int[Tensor, "n slots width"], Int[Tensor, "n slots"]]:
        g, stems = generator, self.n_stems
        tokens = random_order(n, self.n_rare, generator=g)
        code = random_order(n, stems**self.width, generator=g)[:, : self.slots]
        digits = [code // stems**j % stems for j in range(self.width)]
        keys = torch.stack([tokens.gather(1, digit) for digit in digits], dim=-1)
        values = tokens[:, stems : stems + self.slots]
        shown = torch.rand(n, generator=g) < present
        block = place_query(
            n,
            self.n_blocks,
            self.burstiness,
            shown,
            never_first=self.query_never_first,
            generator=g,
        )
        return keyed_batch(keys, values, block, self.place(n, generator=g)), keys, values

    def last_law(self, batch: Batch) -> Float[Tensor, "n vocab"]:
        return keyed_law(batch, self.width, torch.ones(self.vocab_size, dtype=torch.bool))

    def ceiling(self) -> Ceiling:
        """Closed where the answer is always shown; else `law` gives it on samples."""
        if self.present < 1:
            return Ceiling(None, None, None, None, None, None)
        return super().ceiling()
