"""Recorded answers: heads that attend, patterns, one row a head, circuits as words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from plain_answers import said
from recorded_coordinates import extended_of, kind
from recorded_parts import PARTNER, made, probe_of, replace_job, soft_induction
from small_models import (
    MATCH,
    PREVIOUS,
    VOCAB,
    Job,
    S,
    normal,
    planted,
    random_weights,
)
from torch import Tensor

from imir_detect.circuits import (
    attending,
)
from imir_detect.circuits.core import Circuit, Coverage, short
from imir_detect.circuits.heads import head_table
from imir_detect.circuits.matched import observe
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import Relation
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, Edge
from imir_detect.frame.lookups import INDUCTION, Lookup


def attended(chosen: str) -> Callable[[], Any]:
    return lambda: attended_by(chosen)


ATTENDED = ("suppression", "duplicate", "prefix", "skip")


def attended_by(chosen: str) -> Any:
    found: dict[str, Any] = {}
    second = Job(1, 1, S.token, S.first, (S.token, S.logit), gain=-2.5)
    same = Job(1, 1, S.token, S.token, (S.token, S.second), sharp=7.0)
    skipping = replace_job(PREVIOUS, back=2)
    models = {
        "suppression": (planted(PREVIOUS, second), INDUCTION),
        "duplicate": (planted(PREVIOUS, same, noise=0.02), INDUCTION),
        "prefix": (planted(PREVIOUS, replace_job(MATCH, moves=(S.token, S.second))), INDUCTION),
        "skip": (planted(skipping, replace_job(second, gain=-3.0)), Lookup(2)),
    }
    for name, (weights, lookup) in models.items():
        if name != chosen:
            continue
        asked = probe_of(weights, 64)
        first = observe(asked, lookup, None, stream=21, n=160)
        again = observe(asked, lookup, None, stream=31, n=64)
        found[name] = attending.matching_circuits(asked, first, again, set())
        found[f"{name}, taken"] = attending.matching_circuits(asked, first, again, {(1, 1)})
        cut = replace(weights, W_U=weights.W_U[:, :5], b_U=weights.b_U[:5])
        found[f"{name}, other outputs"] = attending.matching_circuits(
            probe_of(cut, 64), first, again, set()
        )
        found[f"{name}, pushed"] = [
            attending._pushed_down(asked, again, head) for head in weights.heads
        ]
    return found


def fixed_places() -> Any:
    found: dict[str, Any] = {}
    sink = Job(0, 1, slice(0, 0), slice(0, 0))
    models = {
        "one back": planted(PREVIOUS, sink),
        "two back": planted(replace_job(PREVIOUS, back=2), layers=1),
        "four back": planted(replace_job(PREVIOUS, back=4), layers=1),
        "far back": planted(replace_job(PREVIOUS, back=6), layers=1),
    }
    weights = planted(layers=1)
    weights.W_Q[0, 0, S.position, 0] += 9.0
    weights.W_K[0, 0, S.position.start, 0] += 1.0
    models["sink"] = weights
    for name, model in models.items():
        for context in (3, 4, 5, 9):
            asked = Probe(model, torch.arange(VOCAB), context, 32)
            patterns = Patterns.take(asked)
            found[f"{name}, {context}"] = attending.fixed_place_circuits(asked, patterns)
    found["distances"] = {n: attending.distances(n) for n in (1, 2, 3, 4, 5, 6, 12, 13, 14, 16)}
    return found


def patterns() -> Any:
    found: dict[str, Any] = {}
    for name, weights in (("planted", soft_induction()), ("random", kind("plain"))):
        for context in (2, 3, 4, 7, 8):
            asked = replace(probe_of(weights), context=context)
            taken = Patterns.take(asked)
            found[f"{name}, {context}"] = {
                "period": taken.period,
                "mean": [taken.mean((1, 0)), taken.mean((0, 0), repeated=True)],
                "backs": [
                    taken.backs(head, [k for k in (1, 2, 5) if k < context])
                    for head in ((0, 0), (1, 0))
                ],
                "previous": [taken.previous(head) for head in ((0, 0), (1, 0))],
                "behind": [taken.behind_copy((1, 0), k) for k in (-1, 0, 1, 2, 3, 4)],
                "errors": [taken.errors(head) for head in ((0, 0), (1, 0))],
                "first": [taken.to_first(head) for head in ((0, 0), (1, 1))],
            }
    one = Patterns.take(probe_of(kind("plain")))
    single = replace(one, repeated=one.repeated.select(torch.tensor([0])), plain=one.plain)
    found["one context"] = single.errors((0, 0))
    return found


def heads() -> Any:
    found: dict[str, Any] = {}
    for name in ("plain", "rotary"):
        weights = kind(name)
        asked = probe_of(weights)
        taken = Patterns.take(asked)
        circuits = (
            made("previous_token", (0, 0), strength=0.6),
            made("position_sink", (0, 0), (0, 1), strength=0.9),
            made("duplicate_token", (1, 0)),
            made("induction", (0, 0), (2, 0), parts=(((2, 0), "induction"),)),
            made("skip", (1, 1), strength=0.2, parts=(((1, 1), "skip"),)),
        )
        relation = Relation(PARTNER, False)
        found[name] = head_table(asked, taken, relation, circuits)
        extended = extended_of(weights)
        found[f"{name}, extended"] = head_table(asked, taken, relation, circuits, extended)
        cut = replace(weights, W_U=weights.W_U[:, :5], b_U=weights.b_U[:5])
        found[f"{name}, other outputs"] = head_table(
            replace(asked, weights=cut), taken, relation, circuits
        )
    large = random_weights(vocab=520, context=4, layers=1, heads=1, seed=8)
    asked = Probe(large, torch.arange(4, 520), 4, 8)
    relation = Relation(torch.arange(520).roll(1), False)
    found["many tokens"] = head_table(asked, Patterns.take(asked), relation, ())
    return found


class Shown(torch.nn.Linear):
    """A model that runs and shows the patterns of some layers."""

    def __init__(self, *layers: int) -> None:
        super().__init__(1, 1)
        self.layers = layers

    def run_with_cache(self, tokens: Tensor, names_filter: Any) -> Any:
        length = tokens.shape[1]
        cache = {
            f"blocks.{layer}.attn.hook_pattern": normal(1, 2, length, length, seed=layer)
            for layer in self.layers
        }
        return torch.zeros(1, length, 3), {k: v for k, v in cache.items() if names_filter(k)}


def circuits() -> Any:
    """What circuits say of themselves, and what they refuse."""
    edges = (Edge(EMBED, (0, 1), "K"), Edge((0, 1), (1, 0), "K"), Edge((1, 0), OUTPUT, "out"))
    whole = Coverage(0.755, "positions", ("copies at positions 0", "<b>"))
    one = Circuit(
        "induction",
        ((0, 1), (1, 0)),
        edges,
        {"match": 3.25, "copy": -0.149},
        0.505,
        whole,
        "a note",
    )
    many = made("k_hop", *((0, k) for k in range(14)), strength=0.5, hops=2)
    twelve = made("k_hop", *((0, k) for k in range(12)))
    none = made("in_weights", strength=1.0)
    outside = [(-0.01, 0.5), (0.0, 0.0), (1.0, 1.0), (1.01, 0.5), (0.5, -0.1), (0.5, 1.1)]
    return {
        "words": [
            word
            for c in (one, many, twelve, none)
            for word in (str(c), c.brief(), c._repr_html_(), c.names, c.ends, c.works)
        ],
        "hooks": [name for name, _ in one.hooks(2)],
        "coverage": [str(whole), float(whole), str(Coverage(1.0, "tokens"))],
        "short": [short(list(range(n))) for n in (0, 1, 8, 9)] + [short([3, 4, 5], 2)],
        "refused": [
            said(lambda s=s, c=c: Circuit("offset", (), (), {}, s, Coverage(c, "tokens")))  # type: ignore[misc]
            for s, c in outside
        ],
        "edges": said(lambda: Circuit("offset", ((0, 1),), edges, {}, 1.0, whole)),
        "ablate": said(lambda: one.ablate(object()).__enter__()),
        "patterns": [
            said(lambda: one.patterns(object(), [1, 2])),
            said(lambda: one.patterns(Shown(0, 1), torch.zeros(2, 3))),
            said(lambda: one.patterns(Shown(), [1, 2])),
            said(lambda: one.patterns(Shown(0), [1, 2])),
            said(lambda: made("k_hop", *((k, 0) for k in range(8))).patterns(Shown(7), [1, 2])),
            one.patterns(Shown(0, 1), [1, 2, 0]),
            one.patterns(Shown(0, 1), torch.tensor([1, 2])).dtype,
            none.patterns(Shown(0, 1), [1, 2, 0]),
        ],
    }


CASES: dict[str, Callable[[], Any]] = {
    **{f"attending, {name}": attended(name) for name in ATTENDED},
    "attending, fixed places": fixed_places,
    "patterns": patterns,
    "heads": heads,
    "core": circuits,
}
