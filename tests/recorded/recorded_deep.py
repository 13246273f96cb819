"""Recorded answers: deep models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from recorded_coordinates import KINDS, extended_of, kind, run_of
from recorded_parts import PARTNER, soft_induction
from small_models import (
    F64,
    normal,
    random_weights,
)

from imir_detect.circuits import deep as deep_module
from imir_detect.circuits.deep import deep_circuits
from imir_detect.circuits.deep_feeders import fed, searched, wished_key, wished_query, wished_value
from imir_detect.circuits.deep_relation import extended_relation
from imir_detect.circuits.deep_seen import Deep
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import Relation
from imir_detect.coordinates.extended import Extended
from imir_detect.coordinates.pathsum import Edge
from imir_detect.weights.model import ModelWeights


@cache
def deep_of(name: str) -> Deep:
    weights = soft_induction() if name == "planted" else kind(name)
    extended = extended_of(weights) if name != "planted" else planted_extended(weights)
    return Deep.take(weights, extended, run_of(weights), seed=3)


def planted_extended(weights: ModelWeights) -> Any:
    return Extended.take(
        weights, run_of(weights), torch.arange(9), 9, tokens=9, occurrences=8, seed=4
    )


def deep(name: str) -> Callable[[], Any]:
    def answer() -> Any:
        made = deep_of(name)
        weights = made.weights
        relation = Relation(
            PARTNER[: weights.vocab_size] % weights.vocab_size,
            True,
            normal(weights.vocab_size, seed=2),
        )
        asked = Probe(weights, made.extended.tokens, made.extended.context, 8, 1)
        target = list(weights.heads)[-1]
        cut = replace(weights, W_U=weights.W_U[:, :5], b_U=weights.b_U[:5])
        return {
            "deep": [made.period, made.top, made.queries, made.right()],
            "plain": [made.plain.index, made.repeated.index],
            "lift": [made.lift(head, k) for head in weights.heads for k in (0, 1, 2)],
            "copies": [deep_module.copies(made, head) for head in weights.heads],
            "fed": fed(made, (target, (1, 0))),
            "fed, other outputs": fed(replace(made, weights=cut), (target,)),
            "wished": [w(made, target) for w in (wished_key, wished_query, wished_value)],
            "induction": deep_module._induction(made, {target: 0.7, (1, 0): 0.2}),
            "in weights": deep_module._in_weights(made, relation),
            "fixed": deep_module._fixed_places(asked, made),
            "matching": deep_module._matching(made),
            "circuits": deep_circuits(asked, made, relation),
            "relation": extended_relation(weights, made.extended),
        }

    return answer


def searched_and_single() -> Any:
    def terms(head: tuple[int, int], **nats: float) -> Any:
        made = {(0, int(name[1])): value for name, value in nats.items()}
        return {head: {Edge(source, head, "K"): value for source, value in made.items()}}

    both = terms((1, 0), h0=2.0, h1=0.15, h2=-1.0) | terms((2, 1), h0=0.02, h1=3.0, h2=0.25)
    return [
        searched(both),
        searched(terms((1, 0), h0=-1.0)),
        searched({}),
        deep_module._single("offset", (1, 2), {"copy": 1.0}, 1.5, "more than all"),
        deep_module._single("offset", (1, 2), {}, -0.5, "less than none"),
    ]


def deep_relations() -> Any:
    """Leads about the bar, by hand."""
    weights = random_weights(vocab=12, layers=1)
    extended = replace(
        extended_of(random_weights(vocab=12, layers=1)),
        tokens=torch.arange(9),
        named=torch.tensor([[1, 0, 3, 2, 5, 4, 7, 6, 1], [1, 0, 3, 2, 5, 4, 7, 8, 1]]),
        lead=torch.tensor([[4, 4, 4, 4, 3, 4, 5, 4, 0.1]] * 2, dtype=F64),
        spread=torch.tensor([[1, 1, 1, 1, 1, 0.5, 1, 1, 1]] * 2, dtype=F64),
    )
    cut = replace(weights, W_U=weights.W_U[:, :5], b_U=weights.b_U[:5])
    one = replace(extended, named=torch.ones(2, 9, dtype=torch.long))
    weak = replace(extended, lead=extended.lead * 0.7)
    wide = random_weights(vocab=400, layers=1)
    many = []
    for count in (39, 40, 41):  # a tenth of 400 tokens is enough, and no less
        lead = torch.where(torch.arange(400) < count, 9.0, 0.0).to(F64).expand(2, -1)
        clear = replace(
            extended,
            tokens=torch.arange(400),
            named=torch.arange(400).roll(1).expand(2, -1),
            lead=lead,
            spread=torch.ones(2, 400, dtype=F64),
        )
        many.append(extended_relation(wide, clear).coverage)
    return [
        many,
        extended_relation(weights, extended),
        extended_relation(cut, extended),
        extended_relation(weights, one),
        extended_relation(weights, weak),
    ]


CASES: dict[str, Callable[[], Any]] = {
    **{f"deep, {name}": deep(name) for name in (*KINDS, "planted")},
    "deep, searched": searched_and_single,
    "deep relation": deep_relations,
}
