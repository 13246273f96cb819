"""Control: a periodic sequence. The token one period back is asked, at a fixed offset."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.tasks.base import IGNORE, Batch
from imir_detect.tasks.checks import Rule, at_least, require, right_types, shares
from imir_detect.tasks.copying import all_tokens, last_question
from imir_detect.tasks.family import TaskDefaults, point_mass
from imir_detect.tasks.labels import ExpectedCircuit, Symmetry, direct_copy


@dataclass(frozen=True)
class Periodic(TaskDefaults):
    """A random word of `period` tokens, over and over; the next token is asked once it is due.

    The alphabet is small, so that tokens recur inside a word and matching the last token alone
    does not tell what follows; the period is the same in every sequence.

    - `n_tokens`: length. `n_common`: vocabulary. `label_noise`: as in recall.

    >>> Periodic(period=2).draw(1, generator=torch.Generator().manual_seed(0)).tokens.shape
    torch.Size([1, 24])
    """

    n_tokens: int = 24
    n_common: int = 4
    period: int = 6
    label_noise: float = 0.0

    name = "periodic"
    control = True

    def __post_init__(self) -> None:
        require(self.name, right_types(self))
        require(self.name, at_least(self, n_tokens=1, n_common=2, period=1))
        fits = Rule(
            self.period <= self.n_tokens,
            f"period={self.period} with n_tokens={self.n_tokens}",
            "a period of at most n_tokens",
            "lower period or raise n_tokens",
        )
        require(self.name, [fits, *shares(self, "label_noise")])

    @property
    def vocab_size(self) -> int:
        return self.n_common

    @property
    def length(self) -> int:
        return self.n_tokens

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        return (all_tokens(self.n_common),)

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        back = self.period - 1
        kind = {0: "none", 1: "previous_token"}.get(back, "offset")
        return (direct_copy(f"{back} back", back, kind),)

    def draw(self, n: int, *, generator: torch.Generator) -> Batch:
        word = torch.randint(self.n_common, (n, self.period), generator=generator)
        return self._repeat(word)

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """The last question, and the same word with another token where the answer stands."""
        word = torch.randint(self.n_common, (n, self.period), generator=generator)
        other = torch.randint(1, self.n_common, (n,), generator=generator)
        due = self.n_tokens % self.period
        changed = word.clone()
        changed[:, due] = (word[:, due] + other) % self.n_common
        return last_question(self._repeat(word)), last_question(self._repeat(changed))

    def _repeat(self, word: Tensor) -> Batch:
        place = torch.arange(self.n_tokens)
        tokens = word[:, place % self.period]
        targets = word[:, (place + 1) % self.period]
        back = place - (self.period - 1)
        targets[:, back < 0] = IGNORE
        return Batch(tokens, targets, back.clamp(min=-1).expand(len(word), -1).clone())

    def clean_law(self, batch: Batch) -> Float[Tensor, "asked vocab"]:
        wanted = batch.tokens.roll(self.period - 1, dims=1)[batch.targets != IGNORE]
        return point_mass(wanted, self.vocab_size)
