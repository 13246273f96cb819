"""Control: a list of numbers, then the same in order."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.tasks.base import IGNORE, Batch
from imir_detect.tasks.checks import at_least, require, right_types, shares
from imir_detect.tasks.copying import all_tokens, last_question
from imir_detect.tasks.family import TaskDefaults, last_seen, point_mass
from imir_detect.tasks.labels import (
    LOGITS,
    Assumptions,
    Edge,
    ExpectedCircuit,
    ExpectedUnit,
    Symmetry,
)


@dataclass(frozen=True)
class Sorting(TaskDefaults):
    """Independent uniform numbers, a separator, and the numbers in rising order, all asked.

    - `n_items`: numbers of a list, repeats allowed. `n_common`: how many numbers there are; the
      token after them is the separator. `label_noise`: as in recall.

    >>> Sorting(n_items=3, n_common=9).length
    6
    """

    n_items: int = 8
    n_common: int = 16
    label_noise: float = 0.0

    name = "sorting"
    control = True

    def __post_init__(self) -> None:
        require(self.name, right_types(self))
        require(self.name, at_least(self, n_items=1, n_common=2))
        require(self.name, shares(self, "label_noise"))

    @property
    def vocab_size(self) -> int:
        return self.n_common + 1

    @property
    def length(self) -> int:
        return 2 * self.n_items

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        numbers = all_tokens(self.n_common).generators
        moves = tuple((*image, self.n_common) for image in numbers)
        return (Symmetry("numbers", "token", moves, False, "numbers have an order"),)

    @property
    def assumptions(self) -> Assumptions:
        return Assumptions(None, False, None)

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        """Attend to the list and copy; the order itself sits in the scores, in no unit."""
        units = (ExpectedUnit("next larger", "gather", 0), ExpectedUnit("copy", "copy", 0))
        edges: tuple[Edge, ...] = (("next larger", "copy", "V"), ("copy", LOGITS, "out"))
        return (ExpectedCircuit("none", units, edges),)

    def draw(self, n: int, *, generator: torch.Generator) -> Batch:
        items = torch.randint(self.n_common, (n, self.n_items), generator=generator)
        return self._sort(items)

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """The last question (the largest number), and the same with another largest number.

        No other number of either list is larger than the smaller of the two.
        """
        g, m = generator, self.n_items
        top = torch.randint(1, self.n_common, (n, 1), generator=g)
        other = (top + torch.randint(1, self.n_common, (n, 1), generator=g)) % self.n_common
        below = torch.minimum(top, other)
        small = (torch.rand(n, m, generator=g) * (below + 1)).long().minimum(below)
        place = torch.randint(m, (n, 1), generator=g)
        lists = (small.scatter(1, place, value) for value in (top, other))
        clean, corrupt = (last_question(self._sort(items)) for items in lists)
        return clean, corrupt

    def _sort(self, items: Tensor) -> Batch:
        ordered = items.sort(dim=1).values
        separator = torch.full((len(items), 1), self.n_common)
        tokens = torch.cat([items, separator, ordered[:, :-1]], dim=1)
        targets = torch.full_like(tokens, IGNORE)
        targets[:, self.n_items :] = ordered
        return Batch(tokens, targets, last_seen(tokens, targets, self.vocab_size))

    def token_name(self, token: int) -> str:
        return "|" if token == self.n_common else f"n{token}"

    def clean_law(self, batch: Batch) -> Float[Tensor, "asked vocab"]:
        wanted = torch.full_like(batch.tokens, 0)
        wanted[:, self.n_items :] = batch.tokens[:, : self.n_items].sort(dim=1).values
        return point_mass(wanted[batch.targets != IGNORE], self.vocab_size)
