"""Recorded answers of the parts of `imir_detect.circuits`, one case a function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from plain_answers import said
from recorded_coordinates import KINDS, extended_of, generator, kind, run_of, tokens_for
from small_models import (
    F64,
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
    association,
    attending,
    attribution,
    eliminate,
    exhaustive,
    matched,
    probe,
)
from imir_detect.circuits import deep as deep_module
from imir_detect.circuits import induction as induction_module
from imir_detect.circuits import relation as relation_module
from imir_detect.circuits.causal_graph import (
    CausalEdge,
    CausalGraph,
    position_scores,
    recover_causal_graph,
)
from imir_detect.circuits.causal_null import head_p_values, row_p_values
from imir_detect.circuits.core import Circuit, Coverage, short
from imir_detect.circuits.deep import Deep, deep_circuits
from imir_detect.circuits.deep_relation import extended_relation
from imir_detect.circuits.eliminate import Search, cheap_order, eliminate_literally, estimated_loss
from imir_detect.circuits.exhaustive import Additive, best_subset
from imir_detect.circuits.graph_induction import (
    GraphInduction,
    describe,
    exchange_places,
    graph_contexts,
    graph_induction,
    merged,
)
from imir_detect.circuits.heads import head_table
from imir_detect.circuits.matched import Matched, observe
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import Relation, estimate_relation
from imir_detect.circuits.weights_objective import WeightsObjective, weights_frame
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, Edge, sum_paths
from imir_detect.frame.contexts import Contexts
from imir_detect.frame.lookups import INDUCTION, Lookup, matching_contexts
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.latent_graph import chain, halves, random_forest
from imir_detect.training.two_stage import initial_model
from imir_detect.weights.model import ModelWeights

EVERY = torch.arange(10)
PARTNER = torch.tensor([1, 0, 3, 2, 7, -1, -1, 9, -1, 4])
NOBODY = Relation(torch.full((10,), -1), False)


def probe_of(weights: ModelWeights, samples: int = 48, **fields: Any) -> Probe:
    words = torch.arange(weights.vocab_size)
    context = min(weights.n_ctx or 8, weights.vocab_size)
    return Probe(weights, words, context, samples, **fields)


@cache
def soft_induction() -> ModelWeights:
    return planted(PREVIOUS, MATCH, noise=0.05)


# -- probe -----------------------------------------------------------------------------------------


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


# -- what is seen with a match ---------------------------------------------------------------------


@cache
def seen(name: str, lookup: Lookup = INDUCTION) -> Matched:
    weights = soft_induction() if name == "planted" else kind(name)
    return observe(probe_of(weights), lookup, None, stream=21, n=40)


LOOKED = (INDUCTION, Lookup(2), Lookup(-1), Lookup(hops=2), Lookup(prefix=2))


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


# -- attribution -----------------------------------------------------------------------------------


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


# -- heads that attend -----------------------------------------------------------------------------


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


def replace_job(job: Job, **fields: Any) -> Job:
    return job._replace(**fields)


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


# -- association -----------------------------------------------------------------------------------

PAIRS = {0: 1, 1: 0, 2: 3, 3: 2, 4: 5, 5: 4}


@cache
def associating(how: str) -> ModelWeights:
    if how == "direct":
        return planted(PREVIOUS, pairs=PAIRS, gain=1.5, noise=0.05)
    if how == "weak":
        return planted(PREVIOUS, MATCH, pairs=PAIRS, gain=0.4, noise=0.1)
    weights = planted(Job(0, 1, S.position, S.position, sharp=5.0), noise=0.05)
    for token, partner in PAIRS.items():  # a head that looks at itself writes the partner
        weights.W_V[0, 1, token, token] += 2.0
        weights.W_O[0, 1, token, S.logit.start + partner] += 1.5
    return weights


def given(estimated: bool = False) -> Relation:
    partner = torch.full((VOCAB,), -1)
    partner[list(PAIRS)] = torch.tensor(list(PAIRS.values()))
    return Relation(partner, estimated, None)


def in_weights() -> Any:
    found: dict[str, Any] = {}
    for how in ("direct", "weak", "head"):
        asked = probe_of(associating(how), 60)
        for estimated in (False, True):
            relation = given(estimated)
            found[f"{how}, {estimated}"] = association.find_in_weights(asked, relation)
        found[f"{how}, places"] = association._places(asked, given())
        question = association._ask(asked, given(), stream=5, places=torch.tensor([2, 4]))
        found[f"{how}, asked"] = question
        trace = sum_paths(asked.weights, question.tokens)
        right = probe.answers(asked.weights, trace, question)
        found[f"{how}, coverage"] = association._token_coverage(
            right, question, given(), torch.tensor([2, 4]), 9
        )
        means = attribution.logit_margins(asked.weights, trace, question, None)
        margins = {node: float(m.mean()) for node, m in means.items()}
        found[f"{how}, edges"] = [
            association._edges(asked.weights, question, trace, margins, share)
            for share in attribution.SHARES
        ]
    wrong = Relation(torch.tensor([4, -1, -1, 7, -1, -1, -1, -1, 0]), False)
    asked = probe_of(associating("direct"), 40)
    found["wrong"] = association.find_in_weights(asked, wrong)
    found["nobody"] = association.find_in_weights(asked, Relation(torch.full((9,), -1), False))
    found["one place"] = association.find_in_weights(replace(asked, context=1), given())
    found["two places"] = association.find_in_weights(replace(asked, context=2), given())
    cut = replace(asked.weights, W_U=asked.weights.W_U[:, :5], b_U=asked.weights.b_U[:5])
    found["other outputs"] = association.find_in_weights(replace(asked, weights=cut), given())
    return found


def estimated(how: str) -> Callable[[], Any]:
    def answer() -> Any:
        found: dict[str, Any] = {}
        asked = probe_of(associating(how), 60)
        relation = estimate_relation(asked)
        found[how] = [relation, relation.pairs(), relation.pairs(2), relation.coverage]
        found[f"{how}, directly"] = relation_module.directly_paired(asked)
        read = relation_module._ReadOut.take(asked, asked.vocabulary, stream=2)
        found[f"{how}, read-out"] = [read.asked, read.logits, read.parts, read.floor]
        where = torch.arange(1, 9)
        found[f"{how}, tables"] = [read.table(where), read.table(where[2:4], part=0)]
        found[f"{how}, parts"] = relation_module._agreeing_parts(read, where)
        partner = given().partner
        seeds = partner >= 0
        found[f"{how}, places"] = read.places_that_answer(seeds, partner)
        found[f"{how}, pairs"] = relation_module._pairs(read, read)
        return found

    return answer


def estimated_elsewhere() -> Any:
    found: dict[str, Any] = {}
    mixed = random_weights(vocab=12, context=6, mlp=6, rms=True, seed=7)
    asked = probe_of(mixed)
    found["MLPs"] = relation_module._ReadOut.take(asked, torch.arange(2, 11), stream=3)
    found["random"] = estimate_relation(asked)
    found["few words"] = estimate_relation(replace(asked, vocabulary=torch.arange(3)))
    found["four words"] = estimate_relation(replace(asked, vocabulary=torch.arange(4)))
    found["one place"] = estimate_relation(replace(asked, context=1))
    return found


def nulls() -> Any:
    rows = normal(4, 9, seed=3)
    holes = rows.clone()
    holes[0, 2] = holes[1, :7] = float("-inf")
    mask = torch.zeros(40, dtype=torch.bool)
    chances: dict[str, Any] = {}
    for count in (0, 3, 4, 5, 6, 7, 9, 20):
        mask[:] = False
        mask[:count] = True
        chances[str(count)] = [
            relation_module._more_than_chance(mask),
            relation_module._more_than_chance(mask, together=2),
            relation_module._more_than_chance(mask, tries=20),
            relation_module._more_than_chance(mask, chance=0.05),
            relation_module._more_than_chance(mask, together=2, chance=0.01),
        ]
    table = normal(5, 5, seed=8)
    table[1, 3] = float("nan")
    return {
        "null": [relation_module.row_null(r, r.argmax(1)) for r in (rows, holes)],
        "clear": relation_module.row_null(rows, rows.argmax(1), level=0.95),
        "outlier": [
            relation_module.outlier(torch.tensor([1, 2, 3, 10, 40, 5000]), level)
            for level in (0.5, 0.95)
        ],
        "chances": chances,
        "mutual": relation_module._mutual(torch.tensor([1, 0, 3, 4, 2, 5])),
        "centred": relation_module._centred(table),
        "pairs": [Relation(PARTNER, True, normal(10, seed=1)).pairs(m) for m in (None, 0, 1, 3)],
        "named": Relation(PARTNER, False).named,
    }


# -- in-context circuits ---------------------------------------------------------------------------


def induction_parts() -> Any:
    found: dict[str, Any] = {}
    weights = planted(PREVIOUS, MATCH, Job(1, 1, S.token, S.first, (S.token, S.logit)), noise=0.06)
    asked = probe_of(weights, 64)
    for lookup in LOOKED:
        got = observe(asked, lookup, None, stream=22, n=128)
        cells = probe.cover(got.score, got.contexts, 9) & lookup.cells(9)
        made = attribution.ScoreSplit(weights, got.trace, got.contexts, (1, 0), got.looked)
        heads = [(0, 0), (0, 1), (1, 0), (1, 1)]
        found[str(lookup)] = {
            "mechanism": induction_module._mechanism(made, got),
            "look": [
                induction_module._look(got, {(0, 0): 2.0, (0, 1): 0.5}, place)
                for place in (got.target, got.contexts.query)
            ],
            "parts": induction_module._parts(got, heads, {(1, 0): 1.0}),
            "few copies": induction_module._few_copies(lookup, cells),
            "won": [
                induction_module._share_won(asked, got, cells, None, None, guessing=guessing)
                for guessing in (False, True)
                if cells.any()
            ],
            "answering": induction_module.ask_for_answers(asked, got, None, stream=3),
            "of some": induction_module.ask_for_answers(
                asked, got, torch.arange(2, 8), torch.arange(8), stream=4
            ),
        }
    return found


def few_copies() -> Any:
    def columns(*places: int) -> Tensor:
        made = torch.zeros(9, 9, dtype=torch.bool)
        made[:, list(places)] = True
        return made

    tries = [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]
    lookups = (Lookup(2), Lookup(prefix=2), Lookup(hops=2), Lookup(5), Lookup(6), Lookup(7))
    return {
        str(lookup): [induction_module._few_copies(lookup, columns(*t)) for t in tries]
        for lookup in lookups
    }


# -- deep models -----------------------------------------------------------------------------------


@cache
def deep_of(name: str) -> Deep:
    weights = soft_induction() if name == "planted" else kind(name)
    extended = extended_of(weights) if name != "planted" else planted_extended(weights)
    return Deep.take(weights, extended, run_of(weights), seed=3)


def planted_extended(weights: ModelWeights) -> Any:
    return deep_module.Extended.take(
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
        wanted = made.queries - made.period + 1
        return {
            "deep": [made.period, made.top, made.queries, made.right()],
            "plain": [made.plain.index, made.repeated.index],
            "lift": [made.lift(head, k) for head in weights.heads for k in (0, 1, 2)],
            "copies": [deep_module._copies(made, head) for head in weights.heads],
            "terms": deep_module._key_terms(made, (target, (1, 0))),
            "wished": deep_module._wished_key(made, target, wanted),
            "induction": deep_module._induction(made, {target: 0.7, (1, 0): 0.2}),
            "in weights": deep_module._in_weights(made, relation),
            "fixed": deep_module._fixed_places(asked, made),
            "matching": deep_module._matching(made),
            "circuits": deep_circuits(asked, made, relation),
            "relation": extended_relation(weights, made.extended),
        }

    return answer


def searched() -> Any:
    terms: dict[Any, Any] = {
        (1, 0): {(0, 0): 2.0, (0, 1): 0.15, (0, 2): -1.0},
        (2, 1): {(0, 0): 0.02, (1, 0): 3.0, (1, 1): 0.25},
    }
    return [
        deep_module._searched(terms),
        deep_module._searched({(1, 0): {(0, 0): -1.0}}),
        deep_module._searched({}),
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
    return [
        extended_relation(weights, extended),
        extended_relation(cut, extended),
        extended_relation(weights, one),
        extended_relation(weights, weak),
    ]


# -- one row a head --------------------------------------------------------------------------------


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


def made(sort: str, *of: tuple[int, int], strength: float = 0.9, **more: Any) -> Circuit:
    return Circuit(sort, of, (), {}, strength, Coverage(1.0, "positions"), **more)  # type: ignore[arg-type]


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
            said(lambda: one.patterns(object(), torch.zeros(2, 3))),
        ],
    }


# -- causal graphs ---------------------------------------------------------------------------------


@cache
def graph_weights(seed: int = 0, **options: Any) -> ModelWeights:
    """Layer 0, head 0 attends to parents: node 2 and 3 to 0, 4 to 1, 5 to 4, 6 to 2, 7 to 6."""
    weights = random_weights(
        vocab=7, context=10, layers=2, scale=0.05, width=24, d_head=10, seed=seed
    )
    weights.W_pos.zero_()
    weights.W_pos[:, :10] = torch.eye(10, dtype=F64)
    for child, parent in {2: 0, 3: 0, 4: 1, 5: 4, 6: 2, 7: 6, 8: 7}.items():
        weights.W_Q[0, 0, child, parent] += 7.0
    weights.W_K[0, 0, :10, :10] += torch.eye(10, dtype=F64)
    return weights


def graphs() -> Any:
    weights = graph_weights()
    found = recover_causal_graph(weights)
    normed = replace(weights, rms=True, rms_out=True)
    large = random_weights(vocab=257, context=5, layers=1, heads=1, seed=4)
    exact = random_weights(vocab=256, context=5, layers=1, heads=1, seed=4)
    return {
        "graph": found,
        "words": str(found),
        "parents": found.parents,
        "roots": found.roots,
        "n_parents": found.n_parents,
        "first": found.first(5),
        "matrix": found.matrix(),
        "rows": list(found.rows()),
        "other seed": recover_causal_graph(weights, seed=3).edges,
        "six nodes": recover_causal_graph(weights, nodes=6).edges,
        "two nodes": recover_causal_graph(weights, nodes=2).candidates,
        "all nodes": recover_causal_graph(weights, nodes=10).n_nodes,
        "confident": recover_causal_graph(weights, min_confidence=0.99).edges,
        "any": recover_causal_graph(weights, min_confidence=0.0).edges,
        "normed": recover_causal_graph(normed).edges,
        "random": recover_causal_graph(random_weights(context=8)),
        "scores": [position_scores(w, 5) for w in (weights, normed, large, exact)],
        "errors": [
            said(lambda: recover_causal_graph(weights, nodes=1)),
            said(lambda: recover_causal_graph(weights, nodes=11)),
            said(lambda: recover_causal_graph(weights, nodes="two")),  # type: ignore[arg-type]
            said(lambda: recover_causal_graph(weights, min_confidence=1.5, seed=-1)),
            said(lambda: recover_causal_graph(kind("rotary"))),
        ],
    }


def graph_by_hand() -> Any:
    edges = (
        CausalEdge(0, 2, 0.9, 4.0, 0.001, 0),
        CausalEdge(1, 2, 0.8, 3.0, 0.01, 1),
        CausalEdge(1, 2, 0.85, 3.0, 0.01, 0),
        CausalEdge(0, 3, 0.7, 2.0, 0.1, None),
        CausalEdge(2, 4, 0.6, 1.5, 0.2, 1),
        CausalEdge(3, 4, 0.6, 1.5, 0.2, 1),
    )
    graph = CausalGraph(6, edges, edges[:3], (0.1, 0.2), "gradient", (1, 5))
    tied = CausalGraph(5, edges[:4], edges, (0.1,), "weights")
    bare = CausalGraph(3, (), (), (), "weights")
    return [
        [
            g.parents, g.roots, g.n_parents, g.matrix(), str(g), list(g.rows()), g.first(4),
            g.first(3),
        ]
        for g in (graph, tied, bare, CausalGraph(4, edges[3:4], (), (), "weights"))
    ]  # fmt: skip


def causal_nulls() -> Any:
    scores = normal(3, 6, 6, seed=2)
    sharp = scores.clone()
    sharp[0] += 9 * torch.eye(6, dtype=F64).roll(1, 0)
    found = {}
    for name, table in (("noise", scores), ("sharp", sharp), ("two", scores[:, :2, :2])):
        rows = row_p_values(table, generator=generator(1))
        found[name] = [
            rows,
            head_p_values(rows, 16, 4, generator=generator(2)),
            head_p_values(rows, 200, 100, generator=generator(3)),
        ]
    return found


WRITTEN = {"chain": chain(8), "forest": random_forest(9, seed=4), "halves": halves(14)}


def written(name: str) -> Callable[[], Any]:
    """Layer 0 attends to parents, layer 1 matches, the read-out copies: by hand."""

    def answer() -> Any:
        graph = WRITTEN[name]
        model = initial_model(CausalGraphTask(graph, 4), 10.0)
        noise = normal(*model.attention[0].shape, seed=1).to(model.attention[0].dtype)
        with torch.no_grad():
            model.attention[0] += 0.1 * noise
            for child in graph.children:
                for head, node in enumerate(graph.parents[child]):
                    model.attention[0][head, 4 + child, 4 + node] += 6.0
        return graph_induction(probe_of(model.to_weights(), 48))

    return answer


def along_graphs() -> Any:
    weights = graph_weights()
    graph = recover_causal_graph(weights, nodes=9)
    asked = probe_of(weights, 40)
    contexts, right = graph_contexts(graph, asked.vocabulary, 12, generator=generator(1))
    line = CausalGraph(
        5, tuple(CausalEdge(i, i + 1, 1.0, 4.0, 0.0, 0) for i in range(4)), (), (), "weights"
    )
    tree = CausalGraph(
        5, tuple(CausalEdge(0, i, 1.0, 4.0, 0.0, 0) for i in (2, 3)), (), (), "weights"
    )
    two = CausalGraph(
        4, tuple(CausalEdge(p, 3, 1.0, 4.0, 0.0, p) for p in (0, 1)), (), (), "weights"
    )
    return {
        "contexts": [contexts, right],
        "exchanged": exchange_places(contexts, graph.n_nodes, generator=generator(2)),
        "found": graph_induction(asked),
        "described": [describe(g) for g in (graph, line, tree, two)],
        "two parents": graph_contexts(two, torch.arange(6), 9, generator=generator(3)),
    }


# -- Algorithm 1 -----------------------------------------------------------------------------------


def at_most() -> Any:
    """How many directions may be tried: `LARGEST` of them, and no more."""
    kept = exhaustive.LARGEST
    exhaustive.LARGEST = 3
    try:
        few, many = Additive([0.5] * 3), Additive([0.5] * 4)
        return [kept, *(said(lambda o=o: best_subset(o, budget=1.0)) for o in (few, many))]  # type: ignore[misc]
    finally:
        exhaustive.LARGEST = kept


def eliminated() -> Any:
    prices = [0.3, 0.01, 1.2, 0.04, 0.5, 0.002, 0.9, 0.07, 0.02, 0.6, 0.11, 0.033]
    objective = Additive(prices)
    alive = torch.tensor([True] * 7 + [False] * 5)
    wide = Additive([0.001 * (1 + (37 * i) % 101) for i in range(100)])
    found: dict[str, Any] = {
        "literal": eliminate_literally(objective, budget=0.4),
        "subset": [
            best_subset(objective, budget=0.4),
            best_subset(objective, budget=2.0, among=(0, 2, 4, 6)),
            best_subset(Additive([1.0]), budget=1.0),
        ],
        "none": said(lambda: best_subset(objective, budget=0.1, among=(0, 1))),
        "many": said(lambda: best_subset(wide, budget=1.0, among=range(17))),
        "at most": at_most(),
        "additive": [
            objective.evaluate(alive),
            objective.without(alive, torch.tensor([0, 6])),
            objective.margins(alive),
        ],
        "estimated": estimated_loss(normal(5, seed=1), normal(5, 4, seed=2)),
        "cheap": [cheap_order(normal(5, seed=1), normal(5, 4, seed=2), n) for n in (0, 1, 3, 9)],
    }
    searches = {
        "default": None,
        "literally": Search(exact_below=1000),
        "one by one": Search(exact_below=3, share=0.0),
        "short": Search(exact_below=3, share=0.0, shortlist=1),
        "bulk": Search(exact_below=3, share=0.5),
        "wary bulk": Search(exact_below=3, share=0.5, allowance=0.0),
        "bold bulk": Search(exact_below=3, share=0.9, allowance=5.0),
    }
    for name, how in searches.items():
        steps: list[tuple[int, float]] = []
        for label, on, budget in (("few", objective, 0.4), ("many", wide, 0.35)):
            if label == "many" and name in ("literally", "one by one", "short"):
                continue  # a hundred directions one at a time take a second
            result = eliminate.eliminate(
                on,
                budget=budget,
                search=how,
                progress=lambda n, loss, to=steps: to.append((n, loss)),  # type: ignore[misc]
            )
            found[f"{name}, {label}"] = [result, result.rises, result.circuit(range(100))]
        found[f"{name}, steps"] = steps
    found["all"] = eliminate.eliminate(objective, budget=99.0)
    found["refused"] = [
        said(lambda: eliminate.eliminate(objective, budget=-0.5)),
        said(lambda: eliminate.eliminate(objective, budget=math.nan)),
        said(lambda: Search(shortlist=0)),
        said(lambda: Search(share=1.0)),
        said(lambda: Search(share=-0.1)),
        said(lambda: Search(share=0.0, allowance=0.0, shortlist=1)),
        said(lambda: Search(allowance=-0.1)),
        said(lambda: eliminate.Elimination(1.0, (), (), (0.5, 1.5), (1.0, 1.0), 2.0, 1)),
        said(lambda: eliminate.Elimination(1.5, (), (), (0.5, 1.5), (1.0, 1.0), 2.0, 1)),
    ]
    return found


def objective_of(name: str) -> WeightsObjective:
    weights = {
        "plain": lambda: random_weights(vocab=6, context=4, layers=2, width=8, d_head=4),
        "normed": lambda: random_weights(
            vocab=6, context=4, layers=2, width=8, d_head=4, rms=True, mlp=5, seed=3
        ),
    }[name]()
    tokens = torch.randint(6, (5, 4), generator=generator(1))
    targets = torch.full((5, 4), -100)
    targets[:, -1] = torch.randint(6, (5,), generator=generator(2))
    targets[1, 2] = 4
    relation = torch.tensor([1, 0, -1, -1, -1, -1])
    return WeightsObjective(weights, tokens, targets, relation=relation, shifts=2)


def weights_objective(name: str) -> Callable[[], Any]:
    def answer() -> Any:
        objective = objective_of(name)
        every = torch.ones(objective.size, dtype=torch.bool)
        some = torch.rand(objective.size, generator=generator(5)) < 0.7
        last = every.clone()
        last[-3:] = False
        second = every.clone()
        second[objective.size // 2] = False
        chosen = torch.arange(0, objective.size, 17)
        return {
            "size": objective.size,
            "share": objective.share,
            "names": [str(n) for n in objective.names[::7]],
            "flat": objective.flat,
            "evaluate": [objective.evaluate(a) for a in (every, some, last, second, every)],
            "without": objective.without(some, chosen),
            "after": objective.evaluate(last),
            "logits": objective.logits(some),
            "margins": objective.margins(some),
        }

    return answer


def objective_errors() -> Any:
    weights = random_weights(vocab=6, context=4, layers=1, width=8)
    tokens = torch.zeros(2, 4, dtype=torch.long)
    half = torch.full((2, 4), -100)
    half[0, 1] = 1
    cut = replace(weights, W_U=weights.W_U[:, :5], b_U=weights.b_U[:5])
    noted = replace(kind("parallel, normed after"), notes=("a note", "and another"))
    return [
        said(lambda: WeightsObjective(weights, tokens, half)),
        said(lambda: weights_frame(cut)),
        said(lambda: weights_frame(kind("rotary"))),
        said(lambda: weights_frame(noted)),
        [str(s) for s in weights_frame(weights).selections],
        [str(s) for s in weights_frame(weights, shifts=3).selections],
        weights_frame(weights, relation=torch.tensor([1, 0, -1, -1, -1, -1])).embedding,
    ]


def merging() -> Any:
    weights = graph_weights()
    graph = recover_causal_graph(weights, nodes=9)
    own = made("induction", (0, 0), (1, 0), strength=0.8)
    own = replace(own, edges=(Edge((0, 0), (1, 0), "K"),))
    found = GraphInduction(own, graph)
    same = made("induction", (1, 0), strength=0.7)
    better = made("k_hop", (1, 0), strength=0.85)
    level = made("k_hop", (1, 0), strength=0.8)
    other = made("induction", (1, 1), strength=0.95)
    skip = made("skip", (1, 0), strength=0.9)
    sets = [(), (same,), (better, same), (level,), (other, same), (skip, same), (other,)]
    strong = replace(found, circuit=replace(own, strength=0.95))
    nearly = made("induction", (1, 0), strength=0.9)
    return {
        "merged": [[c.brief() for c in merged(s, found)] for s in sets],
        "strong": [[c.brief() for c in merged(s, strong)] for s in ((nearly,), (better,))],
        "none": [c.brief() for c in merged((same,), None)],
        "dict": found.to_dict(),
    }


CASES: dict[str, Callable[[], Any]] = {
    "probe, cover": covered,
    "probe, places": places,
    "probe, lattice": lattices,
    "probe, wins": winning,
    "matched": observed,
    "matched, coverage": coverages,
    **{f"attribution, {name}": split(name) for name in KINDS},
    "attribution, leading": leaders,
    **{f"attending, {name}": attended(name) for name in ATTENDED},
    "attending, fixed places": fixed_places,
    "patterns": patterns,
    "association": in_weights,
    **{f"relation, {how}": estimated(how) for how in ("direct", "weak", "head")},
    "relation": estimated_elsewhere,
    "relation, nulls": nulls,
    "induction, parts": induction_parts,
    "induction, few copies": few_copies,
    **{f"deep, {name}": deep(name) for name in (*KINDS, "planted")},
    "deep, searched": searched,
    "deep relation": deep_relations,
    "heads": heads,
    "core": circuits,
    "causal graph": graphs,
    "causal graph, by hand": graph_by_hand,
    "causal null": causal_nulls,
    "graph induction": along_graphs,
    **{f"graph induction, {name}": written(name) for name in WRITTEN},
    "graph induction, merged": merging,
    "eliminate": eliminated,
    **{f"objective, {name}": weights_objective(name) for name in ("plain", "normed")},
    "objective, errors": objective_errors,
}
