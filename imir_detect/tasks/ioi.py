"""Indirect object identification: "A and B went ... A gave" -> B, as a list of sentences.

The published task has one sentence of context (Wang et al. 2022); more sentences with other
names make it a retrieval in both directions: the subject may be the first name of its sentence
or the second.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.tasks.base import Batch
from imir_detect.tasks.blocks import Offsets, place_unlike_blocks, random_order
from imir_detect.tasks.checks import (
    at_least,
    enough_rare,
    placed_blocks,
    placed_query,
    require,
    right_types,
    shares,
)
from imir_detect.tasks.family import BlockTask, ask_last, point_mass
from imir_detect.tasks.labels import LOGITS, Edge, ExpectedCircuit, ExpectedUnit, at_places

AND, WENT, GAVE = 0, 1, 2
NAMES = (
    *("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "June", "Kai", "Lea"),
    *("Max", "Nora", "Otto", "Pia", "Quin", "Rosa", "Sam", "Tove", "Uma", "Vito", "Wren", "Yara"),
)


@dataclass(frozen=True)
class IndirectObject(BlockTask):
    """Sentences [A and B went], then [S gave]; the answer is the other name of S's sentence.

    - `n_blocks`: sentences in the context; 1 is the published task. Names are rare tokens, all
      different within a sequence.
    - `burstiness`: how often the subject's sentence stands in the context.
    - `label_noise`, `offsets`, `positions`, `query_never_first`: as in recall.

    >>> IndirectObject(n_blocks=2).length
    10
    """

    n_blocks: int = 2
    n_rare: int = 24
    burstiness: int = 1
    label_noise: float = 0.0
    offsets: Offsets = "consecutive"
    positions: int | None = None
    query_never_first: bool = False

    name = "ioi"
    fixed_tokens = ("and", "went", "gave")

    def __post_init__(self) -> None:
        require(self.name, right_types(self))
        require(self.name, at_least(self, n_blocks=1))
        names = 2 * (self.n_blocks - self.burstiness + 1)
        require(
            self.name,
            [
                placed_query(self),
                enough_rare(self, names, "two names for every sentence"),
                *shares(self, "label_noise"),
                *placed_blocks(self),
            ],
        )

    @property
    def block_lengths(self) -> tuple[int, ...]:
        return (*[4] * self.n_blocks, 2)

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        circuits = (both_directions(self.offsets == "consecutive"),)
        return (name_mover(), *circuits) if self.n_blocks == self.burstiness else circuits

    def draw(self, n: int, *, generator: torch.Generator) -> Batch:
        return self.pairs(n, generator=generator)[0]

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """Clean sequences, and the same ones with the other name as subject."""
        g = generator
        slots = self.n_blocks - self.burstiness + 1
        names = self.n_fixed + random_order(n, self.n_rare, generator=g)[:, : 2 * slots]
        names = names.view(n, slots, 2)
        block = place_unlike_blocks(
            n, self.n_blocks, self.burstiness, never_first=self.query_never_first, generator=g
        )
        second = torch.randint(2, (n, 1), generator=g)  # which name of its sentence is subject
        context = torch.empty(n, self.n_blocks, 4, dtype=torch.long)
        context[..., [0, 2]] = names.gather(1, block[..., None].expand(-1, -1, 2))
        context[..., 1], context[..., 3] = AND, WENT
        start = 4 * _last(block == 0)
        places = self.place(n, generator=g)
        gave = torch.full((n, 1), GAVE)
        clean, corrupt = (
            ask_last(
                torch.cat([context.flatten(1), names[:, 0].gather(1, subject), gave], dim=1),
                names[:, 0].gather(1, 1 - subject)[:, 0],
                start + 2 * (1 - subject[:, 0]),
                places,
            )
            for subject in (second, 1 - second)
        )
        return clean, corrupt

    def last_law(self, batch: Batch) -> Float[Tensor, "n vocab"]:
        sentences = batch.tokens[:, :-2].reshape(len(batch), -1, 4)[..., [0, 2]]
        hit = sentences == batch.tokens[:, -2, None, None]
        pair = sentences[torch.arange(len(batch)), _last(hit.any(dim=-1))]
        other = torch.where(pair[:, 0] == batch.tokens[:, -2], pair[:, 1], pair[:, 0])
        return point_mass(other, self.vocab_size)

    def token_name(self, token: int) -> str:
        name = token - self.n_fixed
        return NAMES[name] if 0 <= name < len(NAMES) else super().token_name(token)


def _last(mask: Tensor) -> Tensor:
    """Index of the last set entry of every row."""
    return (mask * torch.arange(1, mask.shape[1] + 1)).max(dim=1).values - 1


def name_mover() -> ExpectedCircuit:
    """The published circuit, in units: find the repeated name, turn away from it, copy a name."""
    units = (
        ExpectedUnit("same name", "match", 0),
        ExpectedUnit("subject to the end", "shift", 1, 1),
        ExpectedUnit("not the subject", "anti_match", 2),
        ExpectedUnit("copy a name", "copy", 2),
    )
    edges: tuple[Edge, ...] = (
        ("same name", "subject to the end", "V"),
        ("subject to the end", "not the subject", "Q"),
        ("not the subject", "copy a name", "V"),
        ("copy a name", LOGITS, "out"),
    )
    return ExpectedCircuit("duplicate_token", units, edges)


def both_directions(consecutive: bool) -> ExpectedCircuit:
    """Skip induction forwards, retrieval backwards: the subject stands first, or second.

    A shift of two joins the names of a sentence at its second name. Where the subject is first,
    that place is found by a match through the shift, and its own name copied; where it is second,
    by a match on its own name, and the shifted one copied. Consecutive sentences need the place,
    since "two back" does not stop at a sentence's start.
    """
    units = (
        ExpectedUnit("2 back", "shift", 0, 2),
        ExpectedUnit("subject", "shift", 0, 1),
        ExpectedUnit("subject was first", "match", 1),
        ExpectedUnit("subject was second", "match", 1),
        ExpectedUnit("copy own name", "copy", 1),
        ExpectedUnit("copy shifted name", "copy", 1),
    )
    edges: tuple[Edge, ...] = (
        ("subject", "subject was first", "Q"),
        ("subject", "subject was second", "Q"),
        ("2 back", "subject was first", "K"),
        ("subject was first", "copy own name", "V"),
        ("2 back", "copy shifted name", "V"),
        ("subject was second", "copy shifted name", "V"),
        ("copy own name", LOGITS, "out"),
        ("copy shifted name", LOGITS, "out"),
    )
    circuit = ExpectedCircuit("skip", units, edges)
    matches = ["subject was first", "subject was second"]
    return at_places(circuit, "a second name", matches) if consecutive else circuit
