"""What a planted model is asked: sequences on which its circuit alone gives the answer.

Every sequence fills the context and asks at its last place. Corrupt sequences are drawn anew and
independently: nothing but the positions stays, so resample ablation takes away all that a token
brings.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Int
from imir_detect.frame.contexts import distinct_tokens
from imir_detect.models.planted import FED, PlantedSpec, relation_of
from imir_detect.tasks.base import IGNORE, Axis, Batch, Ceiling


@dataclass(frozen=True)
class PlantedTask:
    """The question that fits a planted circuit. Meets the task contract.

    - kinds that look behind a match, and `none`: the last token stood before, at a random place;
      wanted is the token 1 (`skip`: `back`) behind it. With triggers, it is one of them. Feeders
      that look back see only themselves at the first places, so no match stands there.
    - `induction_long_prefix`: the last two tokens stood before; each of them stood elsewhere,
      too.
    - `k_hop`: blocks of two from place 0 on; what stands behind the last token's copy is looked up
      in turn. `backward_retrieval`: wanted is the token before the copy.
    - `previous_token`, `offset`: wanted is the token 1 (`back`) before the last.
    - `duplicate_token`: the last token stood before, and another one stands three times; wanted is
      the last token itself, which a head that attends everywhere would not give.
    - `in_weights`: wanted is the last token's partner, which the context does not hold.
    - `position_sink`: wanted is the first token.
    """

    spec: PlantedSpec

    name = "planted"

    @property
    def vocab_size(self) -> int:
        return self.spec.vocab

    @property
    def length(self) -> int:
        return self.spec.context

    @property
    def n_positions(self) -> int:
        return self.spec.context

    @property
    def relation(self) -> Int[Tensor, " vocab"] | None:
        return relation_of(self.spec) if self.spec.kind == "in_weights" else None

    @property
    def competitors(self) -> int:
        return self.spec.context

    def sample(self, n: int, *, generator: torch.Generator) -> Batch:
        """n sequences with the last place asked."""
        spec, last = self.spec, self.spec.context - 1
        rows = torch.arange(n)
        tokens = distinct_tokens(n, last + 1, torch.arange(spec.vocab), generator=generator)
        answer_at = torch.full((n,), -1)
        if spec.kind == "induction_long_prefix":
            # [p q wanted] and [p r q s] in either order: p alone points at q, q alone at s, too.
            drawn = torch.randint(last - 7, (n, 2), generator=generator)
            near, far = drawn.amin(1), drawn.amax(1)
            first = torch.rand(n, generator=generator) < 0.5
            right, rival = torch.where(first, near, far + 4), torch.where(first, far + 3, near)
            tokens[rows, rival] = tokens[rows, last - 1] = tokens[rows, right]
            tokens[rows, rival + 2] = tokens[rows, last] = tokens[rows, right + 1]
            answer_at = right + 2
        elif spec.kind == "k_hop":
            # Place 0 sees itself alone, and so looks as if it were its own predecessor.
            blocks = torch.rand(n, last // 2 - 1, generator=generator).argsort(1)[:, :2]
            first, second = (2 + 2 * blocks).T
            tokens[rows, second] = tokens[rows, first + 1]
            tokens[rows, last] = tokens[rows, first]
            answer_at = second + 1
        elif spec.kind == "backward_retrieval":
            match = torch.randint(1, last - 1, (n,), generator=generator)
            tokens[:, last] = tokens[rows, match]
            answer_at = match - 1
        elif spec.kind in (*FED, "none"):
            back = spec.back if spec.kind == "skip" else 1
            least = 0 if spec.kind == "pointer_induction" else back
            match = torch.randint(least, last - back, (n,), generator=generator)
            if spec.triggers is not None:
                wanted = torch.randint(spec.triggers, (n,), generator=generator)
                tokens = _exchange(tokens, match, wanted)
            tokens[:, last] = tokens[rows, match]
            answer_at = match + back
        elif spec.kind in ("previous_token", "offset"):
            answer_at[:] = last - (1 if spec.kind == "previous_token" else spec.back)
        elif spec.kind == "duplicate_token":
            places = torch.rand(n, last, generator=generator).argsort(1)
            tokens[:, last] = tokens[rows, places[:, 0]]
            tokens.scatter_(1, places[:, 2:4], tokens.gather(1, places[:, 1:2]).expand(-1, 2))
            answer_at = places[:, 0]
        elif spec.kind == "position_sink":
            answer_at[:] = 0
        answers = tokens[rows, answer_at.clamp(min=0)]
        if spec.kind == "in_weights":
            tokens, answers = self._without_partner(n, generator)
            answer_at[:] = -1
        targets, at = torch.full_like(tokens, IGNORE), torch.full_like(tokens, -1)
        targets[:, last], at[:, last] = answers, answer_at
        return Batch(tokens, targets, at)

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """Clean and corrupt: two independent draws."""
        return self.sample(n, generator=generator), self.sample(n, generator=generator)

    def probe(self, axis: Axis, n: int, *, generator: torch.Generator) -> Batch | None:
        """The question itself, on the axis that the circuit answers on."""
        own: Axis = "iwl" if self.spec.kind == "in_weights" else "icl"
        return self.sample(n, generator=generator) if axis == own else None

    def ceiling(self) -> Ceiling:
        known = self.spec.kind == "in_weights"
        return Ceiling(None if known else 1.0, None, 1.0 if known else None, None, 1.0, None)

    def _without_partner(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        partner = relation_of(self.spec)
        named = (partner >= 0).nonzero()[:, 0]
        query = named[torch.randint(len(named), (n,), generator=generator)]
        order = torch.rand(n, self.spec.vocab, generator=generator)
        order[torch.arange(n), query] = 2.0
        order[torch.arange(n), partner[query]] = 3.0
        tokens = order.argsort(1)[:, : self.spec.context]
        tokens[:, -1] = query
        return tokens, partner[query]


def _exchange(tokens: Tensor, place: Tensor, wanted: Tensor) -> Tensor:
    """Rows of different tokens with `wanted` at `place`; a token already there moves in turn."""
    old = tokens.gather(1, place[:, None])
    tokens = torch.where(tokens == wanted[:, None], old, tokens)
    return tokens.scatter(1, place[:, None], wanted[:, None])
