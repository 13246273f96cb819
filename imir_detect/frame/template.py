"""Separators: tokens that stand at every second, third ... place of a model's sequences."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Bool, Int


@dataclass(frozen=True)
class Template:
    """Places i with i % period == start hold separators, drawn at random from those `allowed` at
    the place (by default, and at places beyond: any of them).

    >>> Template((0, 1), period=3, start=1).places(7).nonzero()[:, 0].tolist()
    [1, 4]
    """

    separators: tuple[int, ...]
    period: int
    start: int
    allowed: tuple[tuple[int, ...], ...] = ()

    def places(self, length: int) -> Bool[Tensor, " pos"]:
        """Where separators stand."""
        return torch.arange(length) % self.period == self.start

    def rest(self, vocabulary: Int[Tensor, " vocab"]) -> Int[Tensor, " rest"]:
        """The tokens of a vocabulary that are no separators."""
        return vocabulary[~torch.isin(vocabulary, torch.tensor(self.separators))]

    def write(
        self, tokens: Int[Tensor, "n pos"], *, generator: torch.Generator
    ) -> Int[Tensor, "n pos"]:
        """Rows with separators at their places."""
        tokens = tokens.clone()
        for number, place in enumerate(self.places(tokens.shape[1]).nonzero()[:, 0].tolist()):
            few = self.allowed[number] if number < len(self.allowed) else self.separators
            drawn = torch.randint(len(few), (len(tokens),), generator=generator)
            tokens[:, place] = torch.tensor(few)[drawn]
        return tokens

    def another(self, token: Int[Tensor, " n"], *, generator: torch.Generator) -> Tensor:
        """For each separator, a different one at random; there must be two."""
        some = torch.tensor(self.separators)
        index = (token[:, None] == some).int().argmax(1)
        step = torch.randint(1, len(some), (len(token),), generator=generator)
        return some[(index + step) % len(some)]

    def __str__(self) -> str:
        named = ", ".join(map(str, self.separators))
        return f"tokens {named} at places {self.start}, {self.start + self.period}, ..."
