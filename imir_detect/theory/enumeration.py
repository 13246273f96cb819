"""Every sequence of a tiny recall task with its probability, so that expectations are exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

import torch

from imir_detect._typing import Float, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.relations import is_directed
from imir_detect.linalg import DTYPE

Law = Literal["cyclic", "common", "fixed"]
LARGEST = 200_000

Block = tuple[int, int]


@dataclass(frozen=True)
class Enumerated:
    """All sequences: `tokens`, `positions` (n, T), `answer` (n), `weight` (n) summing to 1."""

    tokens: Int[torch.Tensor, "n pos"]
    positions: Int[torch.Tensor, "n pos"]
    answer: Int[torch.Tensor, " n"]
    weight: Float[torch.Tensor, " n"]


@dataclass(frozen=True)
class TinyRecall:
    """Recall with few tokens: n blocks [key value], then one of the keys.

    - `relation` (V,): partners, -1 for rare tokens. A block is rare with chance `rare_frequency`
      (a fresh ordered pair of unused rare tokens); else common, its key uniform over unused named
      tokens with an unused partner, its value R's, or with chance `variability` another unused
      token of the partner's class. Where one kind has run out, the block is of the other.
    - `offsets`: "cyclic" (every block and the query start at independent uniform positions,
      modulo N), "common" (one uniform offset for the whole sequence, modulo N), "fixed" (none).
    - `skew`: a key's weight is (rank of its pair + 1)^-skew; anything but 0 breaks the symmetry.

    >>> task = TinyRecall(torch.tensor([1, 0, 3, 2, 5, 4]), 2, 4)
    >>> len(task.enumerate().weight)  # 48 token sequences, 4^3 placements
    3072
    """

    relation: Int[torch.Tensor, " vocab"]
    n_blocks: int
    n_positions: int
    rare_frequency: float = 0.0
    variability: float = 0.0
    offsets: Law = "cyclic"
    skew: float = 0.0

    def enumerate(self) -> Enumerated:
        """All sequences. Raises where there are too many, or none."""
        found = [
            (*(t for block in blocks for t in block), *blocks[asked], p / self.n_blocks)
            for blocks, p in self._contexts((), 1.0)
            for asked in range(self.n_blocks)
        ]
        places = list(self._placements())
        size = len(found) * len(places)
        if not 0 < size <= LARGEST:
            raise InvalidArgumentError(
                "this task cannot be enumerated",
                got=f"{size} sequences",
                wanted=f"between 1 and {LARGEST}",
                todo="change the vocabulary, the blocks or the positions",
            )
        rows = torch.tensor([row[:-1] for row in found]).repeat_interleave(len(places), 0)
        weight = torch.tensor([row[-1] for row in found], dtype=DTYPE)
        weight = weight.repeat_interleave(len(places)) / len(places)
        positions = torch.tensor(places).repeat(len(found), 1)
        return Enumerated(rows[:, :-1], positions, rows[:, -1], weight / weight.sum())

    def _contexts(
        self, blocks: tuple[Block, ...], p: float
    ) -> Iterator[tuple[tuple[Block, ...], float]]:
        if len(blocks) == self.n_blocks:
            yield blocks, p
            return
        used = {t for block in blocks for t in block}
        for block, q in self._blocks(used):
            yield from self._contexts((*blocks, block), p * q)

    def _blocks(self, used: set[int]) -> Iterator[tuple[Block, float]]:
        partner = self.relation.tolist()
        rare = [t for t, r in enumerate(partner) if r < 0 and t not in partner and t not in used]
        pairs = [(a, b) for a in rare for b in rare if a != b]
        keys = [a for a, b in enumerate(partner) if b >= 0 and not {a, b} & used]
        f_r = self.rare_frequency if keys and pairs else float(not keys)
        if f_r:
            yield from ((pair, f_r / len(pairs)) for pair in pairs)
        if f_r == 1:
            return
        mass = [(min(a, partner[a]) + 1.0) ** -self.skew for a in keys]
        side = {b for b in partner if b >= 0}
        for a, m in zip(keys, mass, strict=True):
            p = (1 - f_r) * m / sum(mass)
            others = sorted(side - used - {a, partner[a]}) if self.variability else []
            v = self.variability if others else 0.0
            yield (a, partner[a]), p * (1 - v)
            yield from (((a, b), p * v / len(others)) for b in others)

    def _placements(self) -> Iterator[list[int]]:
        n, length = self.n_positions, 2 * self.n_blocks + 1
        if self.offsets == "fixed":
            yield list(range(length))
        elif self.offsets == "common":
            yield from ([(s + t) % n for t in range(length)] for s in range(n))
        else:
            for starts in product(range(n), repeat=self.n_blocks + 1):
                inside = [(s + t) % n for s in starts for t in (0, 1)]
                yield inside[:length]

    @property
    def directed(self) -> bool:
        return is_directed(self.relation)
