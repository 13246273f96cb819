"""Controls that copy from a fixed place: the last token, or the one a fixed offset back.

No token is matched with any other, so a detector must not call the solution induction.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.tasks.base import IGNORE, Batch
from imir_detect.tasks.blocks import zipf_tokens
from imir_detect.tasks.checks import Rule, at_least, require, right_types, shares
from imir_detect.tasks.family import TaskDefaults, ask_last, point_mass
from imir_detect.tasks.labels import (
    Assumptions,
    ExpectedCircuit,
    Symmetry,
    direct_copy,
    permutations_of,
)


@dataclass(frozen=True)
class OffsetCopy(TaskDefaults):
    """Independent tokens; after every one, the token `offset` places back is asked.

    - `n_tokens`: length. `n_common`: vocabulary. `offset`: 1 asks for the token before this one.
    - `zipf`: exponent of the token frequencies, (index + 1)^-zipf. `label_noise`: as in recall.

    >>> batch = OffsetCopy(offset=2).sample(1, generator=torch.Generator().manual_seed(0))
    >>> bool((batch.targets[:, 2:] == batch.tokens[:, :-2]).all())
    True
    """

    n_tokens: int = 24
    n_common: int = 32
    offset: int = 3
    zipf: float = 0.0
    label_noise: float = 0.0

    name = "offset_copy"
    control = True

    def __post_init__(self) -> None:
        check_copy(self, least=1)

    @property
    def vocab_size(self) -> int:
        return self.n_common

    @property
    def length(self) -> int:
        return self.n_tokens

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        return (all_tokens(self.n_common, self.zipf),)

    @property
    def assumptions(self) -> Assumptions:
        return Assumptions(None, False, None)

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        kind = {0: "none", 1: "previous_token"}.get(self.offset, "offset")
        return (direct_copy(f"{self.offset} back", self.offset, kind),)

    def draw(self, n: int, *, generator: torch.Generator) -> Batch:
        tokens = zipf_tokens((n, self.n_tokens), self.n_common, self.zipf, generator=generator)
        targets = tokens.roll(self.offset, dims=1)
        targets[:, : self.offset] = IGNORE
        place = (torch.arange(self.n_tokens) - self.offset).expand(n, -1)
        return Batch(tokens, targets, torch.where(targets == IGNORE, -1, place))

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """The last question, and the same sequence with another token at the answer's place."""
        clean = last_question(self.draw(n, generator=generator))
        place = clean.answer_position[0, -1]
        other = torch.randint(1, self.n_common, (n,), generator=generator)
        tokens = clean.tokens.clone()
        tokens[:, place] = (tokens[:, place] + other) % self.n_common
        return clean, ask_last(tokens, tokens[:, place], clean.answer_position[:, -1])

    def clean_law(self, batch: Batch) -> Float[Tensor, "asked vocab"]:
        wanted = batch.tokens.roll(self.offset, dims=1)[batch.targets != IGNORE]
        return point_mass(wanted, self.vocab_size)


@dataclass(frozen=True)
class CopyLast(OffsetCopy):
    """Independent tokens; after every one, that token itself is asked (offset 0).

    >>> CopyLast().offset
    0
    """

    offset: int = 0

    name = "copy_last"

    def __post_init__(self) -> None:
        check_copy(self, least=0)
        zero = Rule(self.offset == 0, f"offset={self.offset}", "0", "use offset_copy for others")
        require(self.name, [zero])


def check_copy(task: OffsetCopy, *, least: int) -> None:
    """The knobs of a copying task."""
    require(task.name, right_types(task))
    require(task.name, at_least(task, n_tokens=1, n_common=2, offset=least))
    fits = Rule(
        task.offset < task.n_tokens,
        f"offset={task.offset} with n_tokens={task.n_tokens}",
        "an offset below n_tokens",
        "lower offset or raise n_tokens",
    )
    zipf = Rule(task.zipf >= 0, f"zipf={task.zipf}", "at least 0", "use 0 for uniform tokens")
    require(task.name, [fits, zipf, *shares(task, "label_noise")])


def all_tokens(size: int, zipf: float = 0.0) -> Symmetry:
    """The symmetry "any relabelling of the vocabulary", broken by unequal frequencies."""
    why = f"frequencies follow Zipf's law with exponent {zipf}" if zipf else ""
    return Symmetry("all tokens", "token", permutations_of([range(size)], size), not why, why)


def last_question(batch: Batch) -> Batch:
    """The same sequences, asked at the last position only."""
    return ask_last(
        batch.tokens, batch.targets[:, -1], batch.answer_position[:, -1], batch.positions
    )
