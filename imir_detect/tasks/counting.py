"""Controls that count: the frequencies of a sequence's tokens, and the majority of two."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.tasks.base import IGNORE, Batch, Ceiling
from imir_detect.tasks.blocks import random_order
from imir_detect.tasks.checks import Rule, at_least, require, right_types, shares
from imir_detect.tasks.copying import all_tokens
from imir_detect.tasks.family import TaskDefaults, ask_last, last_place, last_seen, point_mass
from imir_detect.tasks.labels import (
    LOGITS,
    Assumptions,
    ExpectedCircuit,
    ExpectedUnit,
    Symmetry,
    permutations_of,
)


def counting_circuit() -> ExpectedCircuit:
    """A head that looks at everything alike, and copies: the average is the count."""
    units = (ExpectedUnit("everything", "gather", 0), ExpectedUnit("copy", "copy", 0))
    return ExpectedCircuit("none", units, (("everything", "copy", "V"), ("copy", LOGITS, "out")))


@dataclass(frozen=True)
class UnigramCounting(TaskDefaults):
    """Every sequence has a token distribution of its own; every next token is asked.

    The distribution is drawn from a symmetric Dirichlet law with `concentration` per token, so
    the next token is v with chance (count of v + concentration) / (t + n_common concentration)
    after t tokens (Polya's urn, from which the sequence is drawn).

    - `n_tokens`: length. `n_common`: vocabulary. `label_noise`: as in recall.

    >>> UnigramCounting(n_common=2).vocab_size
    2
    """

    n_tokens: int = 32
    n_common: int = 8
    concentration: float = 0.25
    label_noise: float = 0.0

    name = "unigram"
    control = True

    def __post_init__(self) -> None:
        require(self.name, right_types(self))
        require(self.name, at_least(self, n_tokens=1, n_common=2))
        some = Rule(
            self.concentration > 0,
            f"concentration={self.concentration}",
            "a number above 0",
            "raise concentration",
        )
        require(self.name, [some, *shares(self, "label_noise")])

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
        return (counting_circuit(),)

    def draw(self, n: int, *, generator: torch.Generator) -> Batch:
        """Token t is new with chance a / (t + a), a = n_common * concentration, and uniform then;
        else it repeats an earlier one, each with equal chance."""
        g, size = generator, self.n_tokens + 1
        total = self.n_common * self.concentration
        place = torch.arange(size)
        new = torch.rand(n, size, generator=g, dtype=torch.float64) < total / (place + total)
        fresh = torch.randint(self.n_common, (n, size), generator=g)
        earlier = torch.rand(n, size, generator=g, dtype=torch.float64) * place
        source = torch.where(new, place, earlier.long().minimum((place - 1).clamp(min=0)))
        for _ in range(self.n_tokens.bit_length()):  # follow the repeats to where they end
            source = source.gather(1, source)
        stream = fresh.gather(1, source)
        tokens, targets = stream[:, :-1].contiguous(), stream[:, 1:].contiguous()
        return Batch(tokens, targets, last_seen(tokens, targets, self.vocab_size))

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """The last question, and the same with the answer and another token exchanged: with the
        last token, or, where that is the answer, with a random one."""
        batch = self.draw(n, generator=generator)
        target, final = batch.targets[:, -1], batch.tokens[:, -1]
        other = torch.randint(1, self.n_common, (n,), generator=generator)
        other = torch.where(final == target, (target + other) % self.n_common, final)
        place = batch.answer_position[:, -1]
        clean = ask_last(batch.tokens, target, place)
        return clean, ask_last(exchange(batch.tokens, target, other), other, place)

    def clean_law(self, batch: Batch) -> Float[Tensor, "asked vocab"]:
        seen = torch.nn.functional.one_hot(batch.tokens, self.n_common).double().cumsum(dim=1)
        law = seen + self.concentration
        law /= law.sum(dim=-1, keepdim=True)
        return law[batch.targets != IGNORE]

    def ceiling(self) -> Ceiling:
        """Not closed; `law` gives it on samples."""
        return Ceiling(None, None, None, None, None, None)


@dataclass(frozen=True)
class Majority(TaskDefaults):
    """Independent fair draws of two tokens; the one that stands more often is asked.

    Which two tokens of the vocabulary, every sequence draws anew.

    - `n_tokens`: length, odd. `n_common`: vocabulary. `label_noise`: as in recall.

    >>> Majority(n_tokens=5).length
    5
    """

    n_tokens: int = 17
    n_common: int = 8
    label_noise: float = 0.0

    name = "majority"
    control = True

    def __post_init__(self) -> None:
        require(self.name, right_types(self))
        require(self.name, at_least(self, n_tokens=1, n_common=2))
        odd = Rule(
            self.n_tokens % 2 == 1,
            f"n_tokens={self.n_tokens}",
            "an odd number, so that there is no tie",
            "add or drop one token",
        )
        require(self.name, [odd, *shares(self, "label_noise")])

    @property
    def vocab_size(self) -> int:
        return self.n_common

    @property
    def length(self) -> int:
        return self.n_tokens

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        tokens = permutations_of([range(self.n_common)], self.n_common)
        return (Symmetry("all tokens", "token", tokens),)

    @property
    def assumptions(self) -> Assumptions:
        return Assumptions(None, False, None)

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        return (counting_circuit(),)

    def draw(self, n: int, *, generator: torch.Generator) -> Batch:
        return self.pairs(n, generator=generator)[0]

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """Clean sequences, and the same with the two tokens exchanged."""
        two = random_order(n, self.n_common, generator=generator)[:, :2]
        which = torch.randint(2, (n, self.n_tokens), generator=generator)
        more = (which.sum(dim=1, keepdim=True) > self.n_tokens // 2).long()
        clean, corrupt = (
            _ask_majority(names.gather(1, which), names.gather(1, more)[:, 0])
            for names in (two, two.flip(1))
        )
        return clean, corrupt

    def last_law(self, batch: Batch) -> Float[Tensor, "n vocab"]:
        counts = torch.nn.functional.one_hot(batch.tokens, self.n_common).sum(dim=1)
        return point_mass(counts.argmax(dim=1), self.vocab_size)


def _ask_majority(tokens: Tensor, target: Tensor) -> Batch:
    return ask_last(tokens, target, last_place(tokens, target))


def exchange(tokens: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Every row with its tokens `one` and `other` exchanged."""
    is_one, is_other = tokens == one[:, None], tokens == other[:, None]
    swapped = torch.where(is_one, other[:, None], tokens)
    return torch.where(is_other, one[:, None], swapped)
