"""What the circuits of a deep model are read from: predicted attention, and what the run says."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex, Int
from imir_detect.circuits.patterns import Patterns
from imir_detect.coordinates.carried import Carried, carry
from imir_detect.coordinates.extended import Extended, Run
from imir_detect.frame.contexts import distinct_tokens, repeated_contexts
from imir_detect.linalg import DTYPE
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.unembed import top_tokens

CONTEXTS = 8


@dataclass(frozen=True)
class Deep:
    """What the circuits of a deep model are read from.

    - `extended`; `repeated` and `plain`: predicted attention on two periods of sampled tokens, and
      on the same first period followed by other tokens. `period` of the former.
    - `top` (n, pos): the token that the model, run on the repeated contexts, puts on top.
    """

    weights: ModelWeights
    extended: Extended
    repeated: Carried
    plain: Carried
    period: int
    top: Int[Tensor, "n pos"]

    @staticmethod
    def take(weights: ModelWeights, extended: Extended, run: Run, *, seed: int) -> Deep:
        generator = torch.Generator().manual_seed(seed + 1)
        size = len(extended.tokens)
        index, period = repeated_contexts(
            CONTEXTS, extended.context, torch.arange(size), generator=generator
        )
        plain = distinct_tokens(CONTEXTS, index.shape[1], torch.arange(size), generator=generator)
        found = []
        for rows in index.split(8):  # type: ignore[no-untyped-call]
            found.append(top_tokens(weights, run(extended.tokens[rows])[-1]))
        return Deep(
            weights,
            extended,
            carry(weights, extended, index),
            carry(weights, extended, plain),
            period,
            torch.cat(found),
        )

    @property
    def queries(self) -> Int[Tensor, " query"]:
        """Places of the second period; its first one is left out, since what it repeats follows
        nothing."""
        return torch.arange(self.period + 1, self.repeated.index.shape[1])

    def right(self) -> Float[Tensor, "n query"]:
        """Whether the model puts the next token on top, at all queries that have one."""
        at = self.queries[:-1]
        return (self.top[:, at] == self.extended.tokens[self.repeated.index[:, at + 1]]).to(DTYPE)

    def patterns(self) -> Patterns[Carried]:
        """The predicted attention, for what looks at patterns only."""
        return Patterns(self.plain, self.repeated, self.period)

    def lift(self, head: HeadIndex, offset: int) -> float:
        """Predicted attention to `offset` after the earlier copy, over that of the same places
        where nothing repeats."""
        layer, index = head
        key = self.queries - self.period + offset
        on = self.repeated.attention[layer][:, index][:, self.queries, key]
        off = self.plain.attention[layer][:, index][:, self.queries, key]
        return float(on.mean() - off.mean())
