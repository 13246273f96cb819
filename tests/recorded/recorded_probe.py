"""Recorded answers: places, wins, matches seen, and where scores and logits come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from recorded_coordinates import KINDS, generator, kind, tokens_for
from recorded_parts import LOOKED, probe_of, seen, soft_induction
from small_models import (
    F64,
    normal,
)
from torch import Tensor

from imir_detect.circuits import (
    attribution,
    matched,
    probe,
)
from imir_detect.circuits.matched import observe
from imir_detect.coordinates.pathsum import EMBED, sum_paths
from imir_detect.frame.contexts import Contexts
from imir_detect.frame.lookups import INDUCTION, Lookup, matching_contexts


def scored(lookup: Lookup, n: int, length: int = 9) -> tuple[Tensor, Contexts]:
    contexts = matching_contexts(n, length, torch.arange(12), lookup, generator=generator(2))
    match = contexts.match
    odd = 0.9 * (match % 2 == 1) + 0.05 * (contexts.query % 3 == 0)
    return (odd + 0.1 * torch.rand(len(contexts), dtype=F64, generator=generator(3))), contexts


def covered() -> Any:
    found = {}
    for name, lookup in (("one", INDUCTION), ("two", Lookup(prefix=2)), ("hops", Lookup(hops=2))):
        for n in (30, 400):
            score, contexts = scored(lookup, n)
            noise = torch.rand(len(contexts), dtype=F64, generator=generator(4))
            third = (contexts.match % 3 == 1).double()
            late = (contexts.query >= 6).double() * noise
            found[f"{name}, {n}"] = [
                probe.cover(s, contexts, 9).nonzero()
                for s in (score, noise, third, late, 0 * noise, noise.round())
            ]
            if len(contexts.links) and contexts.links.shape[1] == 1:
                cells = probe.cover(score, contexts, 9)
                found[f"rows, {name}, {n}"] = [
                    probe.best_rows(s, contexts, cells).nonzero() for s in (score, noise, late)
                ]
    return found


def covered_in_part() -> Any:
    """Scores good on one stride and middling elsewhere: where the search starts matters."""
    found = {}
    for name, lookup in (
        ("one", INDUCTION),
        ("prefix", Lookup(prefix=2)),
        ("hops", Lookup(hops=2)),
    ):
        for stride in (2, 3):
            for seed in range(6):
                g = generator(seed)
                contexts = matching_contexts(150, 11, torch.arange(14), lookup, generator=g)
                on = (contexts.links % stride == seed % stride).all(1)
                chance = torch.where(on, 0.9, 0.45 + 0.05 * seed)
                score = (torch.rand(len(contexts), generator=g) < chance).double()
                found[f"{name}, {stride}, {seed}"] = probe.cover(score, contexts, 11).nonzero()
    return found


def places() -> Any:
    score = torch.tensor([1, 1, 0.9, 0.9, 0.5, 0.2, 1, 0.96, 0.8, 0.9, 0, 0.1], dtype=F64)
    place = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    keep = torch.ones(12, dtype=torch.bool)
    some = place != 0
    many = score.repeat(12), place.repeat(12), keep.repeat(12)
    kept = torch.tensor([True, True, True, False, True, True, True, False])
    scarce = torch.cat([place.repeat(30), torch.tensor([6, 6, 7])])
    scores = torch.cat([score.repeat(30), torch.tensor([1.0, 1.0, 0.7], dtype=F64)])
    return {
        "means": [
            probe._means(score, place, mask, 7) for mask in (keep, some, torch.zeros_like(keep))
        ],
        "near": [
            probe.near_best(score, place, keep, 7),
            probe.near_best(score, place, some, 7),
            probe.near_best(*many, 7),
            probe.near_best(many[0], many[1], many[1] != 3, 7),
            probe.near_best(0 * score, place, keep, 7),
            probe.near_best(scores, scarce, torch.ones_like(scarce, dtype=torch.bool), 8),
        ],
        "best": [
            probe.best_places(score, place, kept, 8),
            probe.best_places(many[0], many[1], kept, 8),
            probe.best_places(score[:0], place[:0], kept, 8),
            probe.best_places(many[0], many[1], torch.zeros(8, dtype=torch.bool), 8),
        ],
    }


def lattices() -> Any:
    def cells(*columns: int, rows: int = 3) -> Tensor:
        made = torch.zeros(rows, 9, dtype=torch.bool)
        made[1:, list(columns)] = True
        return made

    tries = [
        (1, 3, 5, 7), (1, 3, 5, 8), (0, 4, 8), (2, 5, 8), (1, 2), (1, 3), (0, 2, 4, 6, 7),
        (0, 1, 2, 3), (4,), (), (1, 5), (0, 4, 8, 1), (0, 2, 4, 6, 8, 1), (0, 3, 6, 1, 4),
    ]  # fmt: skip
    return {str(columns): probe.lattice(cells(*columns)).nonzero() for columns in tries}


def winning() -> Any:
    weights = kind("plain")
    trace = sum_paths(weights, tokens_for(40))
    contexts = Contexts(
        tokens_for(40),
        torch.arange(40) % 8,
        torch.full((40,), -1),
        torch.randint(10, (40,), generator=generator(6)),
    )
    logits = probe.at_query(trace.final, contexts) @ weights.W_U + weights.b_U
    tied = replace(weights, W_U=torch.cat([weights.W_U[:, :1]] * 10, 1), b_U=0 * weights.b_U)
    many = normal(600, 12, seed=7)
    wanted = (many @ weights.W_U + weights.b_U).argmax(1).roll(1)
    floor = probe.resolution(weights, trace.final)
    # A lead of just the resolution is a tie, anything above it wins.
    row = torch.zeros(1, 12, dtype=F64)
    row[0, 0] = 1.0
    flat = replace(weights, W_U=torch.zeros(12, 10, dtype=F64), b_U=torch.zeros(10, dtype=F64))
    flat.W_U[0, 3] = 1.0
    bar = float(probe.resolution(flat, row))
    leads = []
    for lead in (0.5, 0.99, 1.0, 1.01, 2.0, 3.0):
        flat.W_U[0, 4] = 1.0 - lead * bar
        leads.append(float(probe.wins(flat, row, torch.tensor([3]))))
    return {
        "answers": probe.answers(weights, trace, contexts),
        "best": probe.wins(weights, probe.at_query(trace.final, contexts), logits.argmax(1)),
        "tied": probe.wins(tied, many[:5], torch.zeros(5, dtype=torch.long)),
        "many": probe.wins(weights, many, wanted),
        "none": probe.wins(weights, many[:0], wanted[:0]),
        "resolution": floor,
        "leads": leads,
        "streams": [
            torch.rand(3, generator=replace(probe_of(weights), seed=s).generator(t))
            for s, t in ((0, 0), (0, 1), (3, 5))
        ],
    }


def observed() -> Any:
    found: dict[str, Any] = {}
    weights = soft_induction()
    for lookup in LOOKED:
        got = seen("planted", lookup)
        found[str(lookup)] = {
            "contexts": got.contexts,
            "lift": got.lift,
            "same": got.same,
            "answers": [got.answer_lift, got.right, got.score],
            "places": [got.target, got.looked, got.reached(0)],
            "attends": got.attends,
            "competitors": matched.competitors(got),
            "coverage": matched.coverage_of(probe.cover(got.score, got.contexts, 9), 9, lookup),
        }
    cells = torch.ones(9, 9, dtype=torch.bool).tril(-4)
    part = seen("planted").within(cells)
    found["within"] = [part.contexts, part.lift, part.same, part.right, part.answer_lift]
    other = replace(weights, W_U=weights.W_U[:, :5], b_U=weights.b_U[:5])
    words = torch.arange(4)
    some = observe(
        probe_of(weights), INDUCTION, words, stream=3, n=9, cells=cells, fill=torch.arange(1, 9)
    )
    found["asked, at cells, filled"] = some.contexts
    found["other outputs"] = observe(probe_of(other), INDUCTION, None, stream=3, n=9).right
    return found


def coverages() -> Any:
    cells = torch.ones(9, 9, dtype=torch.bool)
    holes = cells.clone()
    holes[:, 2] = holes[5] = False
    none = torch.zeros_like(cells)
    return {
        str(lookup): [matched.coverage_of(c, 9, lookup) for c in (cells, holes, none)]
        for lookup in LOOKED
    }


def split(name: str) -> Callable[[], Any]:
    def answer() -> Any:
        weights, got = kind(name), seen(name)
        made = attribution.ScoreSplit(weights, got.trace, got.contexts, (2, 1), got.target)
        against = matched.competitors(got)
        return {
            "sources": attribution.sources(got.trace, 2),
            "total": made.total(),
            "by key": made.by_key(),
            "by query": made.by_query(),
            "by key token": [
                made.by_key_token(head, got.contexts.match) for head in ((0, 1), (1, 0))
            ],
            "composition": [
                attribution.composition(made, (2, 1), share) for share in (0.02, 0.1, 0.3)
            ],
            "logits": attribution.logit_margins(weights, got.trace, got.contexts, None),
            "margins": attribution.logit_margins(weights, got.trace, got.contexts, against),
            "values": attribution.value_margins(
                weights, got.trace, got.contexts, (1, 1), got.target
            ),
        }

    return answer


def leaders() -> Any:
    terms: dict[Any, float] = {EMBED: -3.0, (0, 0): 1.0, (0, 1): 0.4, (1, 0): 8.6, (1, 1): 0.0}
    below: dict[Any, float] = {EMBED: -1.0, (0, 0): 0.0}
    return [
        *(attribution.leading(terms, share) for share in (0.0, 0.04, 0.041, 0.1, 0.5, 0.9)),
        attribution.leading(terms),
        attribution.leading(below),
        attribution.leading({}),
    ]


CASES: dict[str, Callable[[], Any]] = {
    "probe, cover": covered,
    "probe, cover in part": covered_in_part,
    "probe, places": places,
    "probe, lattice": lattices,
    "probe, wins": winning,
    "matched": observed,
    "matched, coverage": coverages,
    **{f"attribution, {name}": split(name) for name in KINDS},
    "attribution, leading": leaders,
}
