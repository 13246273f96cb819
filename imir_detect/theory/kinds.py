"""Which kind of circuit wins when several would do: match or double anti-match, on 2-hop induction.

Two ways to answer 2-hop induction share all but two signs. The canonical circuit matches twice:
it attends where the query stood, then where what it found there stood. The double anti-match
attends away twice: after the first step the stream holds everything but what a match would have
found, and avoiding all of that leaves the same place. Gradient descent reaches either, by where
it starts. (Which kind wins: the paper, section 5, for ICL and IWL; this pair is our addition.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.basis import Coefficients
from imir_detect.frame.relations import selections
from imir_detect.models import coordinates as co
from imir_detect.models.canonical import CANONICAL, from_directions
from imir_detect.models.hop_data import HopSequences
from imir_detect.models.idealised import idealised
from imir_detect.training.constrained import Plan, train_coordinates

Kind = Literal["match", "double anti-match", "mixed", "not learned"]
LEARNED = 0.95
PLAN = Plan(steps=250, rate=0.15, optimiser="normalised", batch=128, tail=0.4)


@dataclass(frozen=True)
class KindRace:
    """One run: the canonical four's coordinates (shift, match, match, read-out) before and after.

    `accuracy`: on fresh sequences, at the end.

    >>> KindRace((1.0, 1.0, 0.5, 1.0), (6.0, -4.3, -4.7, 8.3), 1.0).kind
    'double anti-match'
    """

    start: tuple[float, ...]
    end: tuple[float, ...]
    accuracy: float

    @property
    def kind(self) -> Kind:
        """By the signs of the two matches at the end; "not learned" below accuracy 0.95."""
        if self.accuracy < LEARNED:
            return "not learned"
        return kind_of(*self.end[1:3])


def kind_of(first: float, second: float) -> Kind:
    """The kind of a circuit by the coordinates of its two matches."""
    if first > 0 and second > 0:
        return "match"
    return "double anti-match" if first < 0 and second < 0 else "mixed"


def race_kinds(
    *,
    canonical: float,
    noise: float = 0.3,
    hop: HopSequences | None = None,
    plan: Plan = PLAN,
    seed: int = 0,
) -> KindRace:
    """Train all coordinates of a 3-layer model from N(0, noise^2), plus `canonical` on the four.

    Descent by steps of one length (`Plan`); 2-hop induction with six items if not said otherwise.
    `seed` decides the start and all data; the plan's own is not used.
    """
    hop = hop or HopSequences()
    if hop.hops != 2:
        raise InvalidArgumentError(
            "match and double anti-match are two circuits of 2-hop induction",
            got=f"hops={hop.hops}",
            wanted="hops=2",
            todo="pass HopSequences(hops=2)",
        )
    model = idealised(hop.vocab, hop.n_positions, 3)
    lexinvariant = torch.full((hop.vocab,), -1)
    frame = model.frame(selections(lexinvariant, hop.n_positions, shifts=1, per_class=False))
    places = [list(frame.directions()).index(direction) for direction in CANONICAL]
    planted = from_directions(frame, dict.fromkeys(CANONICAL, canonical))
    g = torch.Generator().manual_seed(seed)
    drawn = noise * torch.randn(len(planted.flat()), generator=g, dtype=torch.float64)
    start = planted.like(planted.flat() + drawn)
    found = train_coordinates(frame, lambda n, _: hop.sample(n, g), plan, start=start).coefficients
    tokens, answers, positions = hop.sample(1000, g)
    data = co.kernels(frame, tokens, answers, positions)
    accuracy = co.accuracy(co.logits(found, data), answers)

    def four(c: Coefficients) -> tuple[float, ...]:
        return tuple(c.flat()[places].tolist())

    return KindRace(four(start), four(found), accuracy)
