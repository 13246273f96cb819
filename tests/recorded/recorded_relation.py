"""Recorded answers: association and the relation R, estimated or given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from recorded_parts import LOOKED, PARTNER, probe_of
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
    association,
    attribution,
    probe,
)
from imir_detect.circuits import induction as induction_module
from imir_detect.circuits import relation as relation_module
from imir_detect.circuits.matched import observe
from imir_detect.circuits.relation import Relation, estimate_relation
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.frame.lookups import Lookup
from imir_detect.frame.template import Template
from imir_detect.weights.model import ModelWeights

PAIRS = {0: 1, 1: 0, 2: 3, 3: 2, 4: 5, 5: 4}


ASSOCIATING = ("direct", "weak", "head", "directed", "shared", "twice")


@cache
def associating(how: str) -> ModelWeights:
    if how == "directed":
        return planted(pairs={0: 5, 1: 6, 2: 7, 3: 8}, gain=1.5, noise=0.06)
    if how == "shared":
        return planted(pairs={0: 8, 1: 8, 2: 8, 3: 7, 4: 7, 5: 6}, gain=1.5, noise=0.1)
    if how == "twice":
        weights = planted(pairs=PAIRS, gain=0.8, noise=0.08, mlps=())
        for token, partner in {**PAIRS, 6: 7}.items():
            weights.W_V[0, 1, token, token] += 1.0
            weights.W_O[0, 1, token, S.logit.start + partner] += 0.8
        return weights
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
    found["directly"] = [
        relation_module.directly_paired(
            probe_of(planted(pairs=PAIRS, gain=0.7, noise=0.05 * k, seed=k))
        )
        for k in range(2, 9)
    ]
    large = probe_of(random_weights(vocab=50, context=4, layers=1, heads=1, seed=5))
    found["many contexts"] = relation_module._ReadOut.take(large, torch.arange(50), stream=3)
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
    sizes = {}
    for size in range(8, 60, 3):
        masks = [torch.arange(size) < count for count in range(12)]
        sizes[str(size)] = [
            sum(map(relation_module._more_than_chance, masks)),
            sum(relation_module._more_than_chance(m, together=2) for m in masks),
            sum(relation_module._more_than_chance(m, tries=9) for m in masks),
            sum(relation_module._more_than_chance(m, together=2, chance=0.03) for m in masks),
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
        "by size": sizes,
        "mutual": relation_module._mutual(torch.tensor([1, 0, 3, 4, 2, 5])),
        "centred": relation_module._centred(table),
        "pairs": [Relation(PARTNER, True, normal(10, seed=1)).pairs(m) for m in (None, 0, 1, 3)],
        "named": Relation(PARTNER, False).named,
    }


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
    lookups += tuple(
        Lookup(offset, lag=lag, template=Template((0, 1), period, start))
        for offset, lag in ((1, 0), (2, 1), (-2, 1), (3, 0))
        for period in (2, 3, 4)
        for start in range(period)
    )
    return {
        str(lookup): [induction_module._few_copies(lookup, columns(*t)) for t in tries]
        for lookup in lookups
    }


CASES: dict[str, Callable[[], Any]] = {
    "association": in_weights,
    **{f"relation, {how}": estimated(how) for how in ASSOCIATING},
    "relation": estimated_elsewhere,
    "relation, nulls": nulls,
    "induction, parts": induction_parts,
    "induction, few copies": few_copies,
}
