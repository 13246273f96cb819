"""Recorded answers of whole searches: the circuits of planted models, all kinds of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from recorded_parts import probe_of, seen
from recorded_relation import PAIRS, associating, given
from small_models import MATCH, PREVIOUS, VOCAB, Job, S, Slots, planted, random_weights

from imir_detect.circuits import (
    asking,
    association,
    find_circuits,
    in_context,
    separators,
    smallest,
    verdict,
)
from imir_detect.circuits.core import Circuit, Coverage
from imir_detect.circuits.graph_induction import graph_induction
from imir_detect.circuits.heads import head_table
from imir_detect.circuits.matched import observe
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import Relation, directly_paired, estimate_relation
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, Edge
from imir_detect.frame.lookups import INDUCTION, Lookup
from imir_detect.frame.template import Template
from imir_detect.weights.model import ModelWeights

NOBODY = Relation(torch.full((VOCAB,), -1), False)
SECOND = Job(0, 1, S.position, S.position, (S.token, S.second), back=2)


def sharp(*jobs: Job, to: float = 9.0) -> tuple[Job, ...]:
    return tuple(job._replace(sharp=to) for job in jobs)


def long_prefix() -> ModelWeights:
    """L1H0 matches two tokens: half of its width reads each."""
    weights = planted(*sharp(PREVIOUS, SECOND), noise=0.02)
    for i in range(0, VOCAB):
        for query, key in ((S.token, S.first), (S.first, S.second)):
            weights.W_Q[1, 0, query.start + i, i] += 6.0
            weights.W_K[1, 0, key.start + i, i] += 1.0
        weights.W_V[1, 0, S.token.start + i, i] += 1.0
        weights.W_O[1, 0, i, S.logit.start + i] += 1.0
    return weights


MODELS: dict[str, Callable[[], ModelWeights]] = {
    "induction": lambda: planted(PREVIOUS, MATCH, noise=0.05),
    "weak induction": lambda: planted(
        PREVIOUS._replace(sharp=3.0), MATCH._replace(sharp=3.0), noise=0.1
    ),
    "two feeders": lambda: planted(
        PREVIOUS._replace(only=slice(1, None, 2)),
        PREVIOUS._replace(head=1, only=slice(2, None, 2)),
        MATCH,
    ),
    "two copiers": lambda: planted(PREVIOUS, MATCH, MATCH._replace(head=1, gain=0.6)),
    "faint copier": lambda: planted(PREVIOUS, MATCH, MATCH._replace(head=1, gain=0.03)),
    "skip": lambda: planted(PREVIOUS._replace(back=2), MATCH),
    "pointer": lambda: planted(
        Job(0, 0, S.token, S.token, (S.position, S.first), sharp=8.0),
        Job(1, 0, S.first, S.position, (S.token, S.logit), back=-1, sharp=8.0),
        noise=0.02,
    ),
    "suppression": lambda: planted(PREVIOUS, MATCH._replace(gain=-1.5)),
    "prefix match": lambda: planted(PREVIOUS, MATCH._replace(moves=(S.token, S.second))),
    "two hops": lambda: planted(
        PREVIOUS._replace(only=slice(1, None, 2), sharp=9.0),
        Job(1, 0, S.token, S.first, (S.token, S.second), sharp=9.0),
        Job(2, 0, S.second, S.first, (S.token, S.logit), sharp=9.0),
        layers=3,
        noise=0.02,
    ),
    "backward": lambda: planted(
        PREVIOUS, Job(1, 0, S.token, S.token, (S.first, S.logit)), noise=0.02
    ),
    "long prefix": long_prefix,
    "fixed copy": lambda: planted(PREVIOUS._replace(moves=(S.token, S.logit))),
    "nothing": lambda: planted(),
    "with MLPs": lambda: with_mlps(),
    "separated": lambda: separated(),
}


def separated() -> ModelWeights:
    """At any place, L1H0 looks two behind an earlier copy of the token before the query. Tokens 7
    and 8 are never said."""
    weights = planted(
        *sharp(PREVIOUS, SECOND), Job(1, 0, S.first, S.second, (S.token, S.logit)), noise=0.02
    )
    weights.W_U[:, 7:] = 0.0
    weights.b_U[7:] -= 3.0
    return weights


def with_mlps() -> ModelWeights:
    weights = planted(PREVIOUS, MATCH, noise=0.03)
    other = random_weights(width=5 * VOCAB, layers=3, mlp=8, vocab=VOCAB, scale=0.08, seed=9)
    return replace(weights, mlps=(other.mlps[0], other.mlps[2]), rms=True, rms_out=True, eps=1e-5)


def search(name: str) -> Callable[[], Any]:
    def answer() -> Any:
        asked = probe_of(MODELS[name](), 64, seed=1)
        return find_circuits(asked, NOBODY, Patterns.take(asked))

    return answer


def of_chance(seed: int) -> Callable[[], Any]:
    """Two to four jobs of random sharpness and gain, some noise and now and then a few pairs: no
    number is near a round one, and much is half done."""

    def answer() -> Any:
        g = torch.Generator().manual_seed(seed)

        def between(low: float, high: float) -> float:
            return low + (high - low) * float(torch.rand((), generator=g, dtype=torch.float64))

        choice = (
            PREVIOUS, SECOND, PREVIOUS._replace(head=1, moves=(S.token, S.logit)), MATCH,
            MATCH._replace(head=1), MATCH._replace(key=S.second), Job(0, 1, S.token, S.token),
            Job(1, 1, S.token, S.token, (S.first, S.logit)),
        )  # fmt: skip
        order = torch.randperm(len(choice), generator=g)[: 2 + seed % 3].tolist()
        jobs = [
            choice[i]._replace(sharp=between(3.0, 9.0), gain=between(-0.5, 1.5))
            for i in ([0, 3, *order] if seed % 2 else order)
        ]
        pairs = PAIRS if seed % 4 == 3 else None
        weights = planted(
            *jobs, noise=between(0.02, 0.12), pairs=pairs, gain=between(0.3, 1.5), seed=seed
        )
        asked = probe_of(weights, 48, seed=seed)
        relation = estimate_relation(asked)
        patterns = Patterns.take(asked)
        found = find_circuits(asked, relation, patterns)
        return {
            "found": found,
            "heads": head_table(asked, patterns, relation, found.circuits),
            "partner": relation.partner,
        }

    return answer


def related_by_chance(seed: int) -> Callable[[], Any]:
    """A random relation, some partners shared, some pairs mutual, each of its own strength."""

    def answer() -> Any:
        g = torch.Generator().manual_seed(seed)
        size = 14
        partner = torch.randint(size, (size,), generator=g)
        partner[:6] = torch.tensor([1, 0, 3, 2, 13, 13]) if seed % 2 else partner[:6]
        named = torch.rand(size, generator=g) < 0.7
        weights = planted(noise=0.03 + 0.01 * seed, size=size, seed=seed)
        nats = 0.4 + 1.6 * torch.rand(size, generator=g, dtype=torch.float64)
        logit = Slots(size).logit.start
        for token in named.nonzero()[:, 0].tolist():
            to = int(partner[token])
            weights.W_U[token, to] += nats[token]
            weights.W_V[0, 1, token, token] += 1.0
            weights.W_O[0, 1, token, logit + to] += nats[-1 - token]
        asked = probe_of(weights, 48, seed=seed)
        return [estimate_relation(asked), directly_paired(asked)]

    return answer


def search_with_relation(how: str, estimated: bool) -> Callable[[], Any]:
    def answer() -> Any:
        asked = probe_of(associating(how), 64, seed=2)
        relation = estimate_relation(asked) if estimated else given()
        fresh = asking.fresh_tokens(asked, relation)
        return {
            "found": find_circuits(asked, relation, Patterns.take(asked)),
            "fresh": fresh,
            "answered": asking.answered_tokens(asked, fresh),
        }

    return answer


SMALLEST = (
    "induction",
    "two copiers",
    "faint copier",
    "pointer",
    "backward",
    "two hops",
    "long prefix",
)


def noisy(kind: str) -> Callable[[], Any]:
    """Models that answer now and then, by many paths: shares, stops and choices all matter."""

    def answer() -> Any:
        found = []
        for seed in range(6):
            noise = 0.12 + 0.03 * seed
            if kind == "induction":
                weights = planted(PREVIOUS, MATCH, noise=noise, seed=seed)
                asked = probe_of(weights, 64)
                got = observe(asked, INDUCTION, None, stream=seed, n=64)
                found.append(smallest.smallest_that_answers(asked, got))
            else:
                weights = planted(pairs=PAIRS, gain=0.3 + 0.1 * seed, noise=noise, seed=seed)
                for token, partner in PAIRS.items():
                    weights.W_V[0, 1, token, token] += 1.0
                    weights.W_O[0, 1, token, S.logit.start + partner] += 0.8
                    weights.W_V[1, 0, token, token] += 1.0
                    weights.W_O[1, 0, token, S.logit.start + partner] += 0.2
                asked = probe_of(weights, 64)
                found.append(association.find_in_weights(asked, given()))
        return found

    return answer


def smallest_set(name: str) -> Callable[[], Any]:
    """Candidates, what is left of all paths, and the set chosen, of a planted model."""

    def answer() -> Any:
        asked = probe_of(MODELS[name](), 64)
        lookup = {
            "two hops": Lookup(hops=2), "backward": Lookup(-1), "long prefix": Lookup(prefix=2)
        }.get(name, INDUCTION)  # fmt: skip
        cells = torch.ones(9, 9, dtype=torch.bool)
        cells[:, 0] = False
        got = observe(asked, lookup, None, stream=23, n=64, cells=cells)
        full = float(got.right.mean())
        return {
            "full": full,
            "chosen": smallest.smallest_that_answers(asked, got),
            "candidates": list(smallest._candidates(asked, got)),
            "irreducible": smallest._irreducible(asked, got, full),
            "copiers": [smallest._copiers(asked, got, share) for share in (0.1, 0.5)],
        }

    return answer


def lookups_asked() -> Any:
    found: dict[str, Any] = {}
    for name in ("induction", "skip", "two hops"):
        for context in (3, 4, 5, 6, 7, 9):
            asked = replace(probe_of(MODELS[name]()), context=context)
            found[f"{name}, {context}"] = [
                str(lookup) for lookup in in_context._lookups(asked, Patterns.take(asked))
            ]
    deep = replace(probe_of(random_weights(layers=5, context=26, vocab=30, heads=1)), context=26)
    asked_for = [Lookup(k) for k in (-1, 0, 1, 2)] + [Lookup(hops=2), Lookup(prefix=2)]
    asked_for += [Lookup(2, lag=1), Lookup(template=Template((7, 8), 3, 1))]
    found["matched"] = [in_context._matched_heads(lookup) for lookup in asked_for]
    found["five layers"] = [str(x) for x in in_context._lookups(deep, Patterns.take(deep))]
    return found


class Listed(Probe):
    """A probe that notes which of its streams are asked."""

    asked: ClassVar[list[int]] = []

    def generator(self, stream: int) -> torch.Generator:
        self.asked.append(stream)
        return super().generator(stream)


def streams_asked() -> Any:
    """No two questions share their draws: each has a stream of its own."""
    found: dict[str, Any] = {}
    for name in ("two hops", "skip"):
        plain = probe_of(MODELS[name](), 48)
        listed = Listed(plain.weights, plain.vocabulary, plain.context, 48)
        Listed.asked.clear()
        patterns = Patterns.take(listed)
        find_circuits(listed, estimate_relation(listed), patterns)
        graph_induction(listed)
        head_table(listed, patterns, NOBODY, ())
        found[name] = list(Listed.asked)
    return found


def separators_found() -> Any:
    found: dict[str, Any] = {}
    for name in ("separated", "induction"):
        asked = probe_of(MODELS[name](), 48)
        unsaid = separators.unsaid_tokens(asked, NOBODY)
        given = torch.tensor([7, 8])
        found[name] = {
            "unsaid": unsaid,
            "named": separators.unsaid_tokens(asked, Relation(torch.arange(VOCAB), False)),
            "short": separators.unsaid_tokens(replace(asked, context=2), NOBODY),
            "three": separators.unsaid_tokens(replace(asked, context=3), NOBODY),
            "some words": separators.unsaid_tokens(
                replace(asked, vocabulary=torch.arange(3, 9), context=6), NOBODY
            ),
            "lookups": separators.separated_lookups(asked, unsaid),
            "lookups, given": separators.separated_lookups(asked, given),
            "lookups, one": separators.separated_lookups(asked, given[:1]),
            "forms": [[str(x) for x in separators._forms(asked, s)] for s in ((7,), (7, 8))],
        }
        lookup = Lookup(2, lag=1, template=Template((7, 8), 3, 1))
        contexts = separators._contexts(asked, lookup, 200)
        right = separators._answered(asked, contexts)
        first = (contexts.tokens[:, 1] == 7).double() * right
        found[f"{name}, shares"] = [
            separators._share(r, contexts) for r in (right, first, 0 * right, right.roll(1))
        ]
        seven = (contexts.tokens[:, 1] == 7).double()
        luck = torch.rand(
            len(contexts), dtype=torch.float64, generator=torch.Generator().manual_seed(9)
        )
        chances = [seven * a + (1 - seven) * (a - 0.05 * k) for a in (0.5, 0.9) for k in range(9)]
        found[f"{name}, refined"] = [
            separators._refined(Template((7, 8), 3, 1), contexts, r)
            for r in (right, first, *((luck < c).double() for c in chances))
        ]
    return found


def classes_asked() -> Any:
    """Tokens of two classes, answered within each and hardly across."""
    size, n = 24, 900
    g = torch.Generator().manual_seed(3)
    query, wanted = (torch.randint(size, (n,), generator=g) for _ in range(2))
    luck = torch.rand(n, dtype=torch.float64, generator=g)
    keep = torch.ones(size, dtype=torch.bool)
    keep[5] = False
    first, second = query < 12, wanted < 12
    found = {}
    for name, (a, b, across) in {
        "first": (0.9, 0.7, 0.1),
        "second": (0.6, 0.9, 0.1),
        "level": (0.8, 0.8, 0.35),
        "one class": (0.8, 0.8, 0.7),
        "half": (0.8, 0.4, 0.15),
        "more than half": (0.8, 0.4, 0.3),
    }.items():
        chance = torch.where(first & second, a, torch.where(~first & ~second, b, across))
        right = (luck < chance).double()
        found[name] = [
            asking._one_class(k, query, wanted, right)
            for k in (keep, keep & (torch.arange(size) < 19), keep & (torch.arange(size) < 21))
        ]
    return found


def tokens_asked() -> Any:
    """Which tokens are asked of, where a model answers for some of them only."""
    found: dict[str, Any] = {}
    weights = planted(PREVIOUS, MATCH, noise=0.02)
    big = Slots(14)
    jobs = (
        Job(0, 0, big.position, big.position, (big.token, big.first), back=1, sharp=8.0),
        Job(1, 0, big.token, big.first, (big.token, big.logit), sharp=8.0),
    )
    whole = planted(*jobs, noise=0.02, size=14)
    partial = replace(whole, W_U=whole.W_U.clone())
    partial.W_U[big.logit, 10:] *= -1.0  # these are no answers
    weak = replace(whole, W_U=whole.W_U.clone())
    weak.W_U[:, 1:] *= -1.0  # hardly any is
    soft = replace(whole, W_U=whole.W_U.clone())
    soft.W_U[big.logit, 11:] *= 0.75
    models = {"small": weights, "whole": whole, "partial": partial, "weak": weak, "soft": soft}
    for name, model in models.items():
        for samples in (24, 48):
            asked = probe_of(model, samples)
            found[f"{name}, {samples}"] = [
                asking.answered_tokens(asked, None),
                asking.answered_tokens(asked, torch.arange(1, 8)),
                asking.answered_tokens(asked, torch.arange(3)),
                asking.answered_tokens(asked, torch.arange(4)),
                asking.answered_tokens(asked, torch.arange(2, min(12, model.vocab_size))),
                asking.answered_tokens(asked, torch.arange(min(13, model.vocab_size))),
            ]
    partner = torch.full((VOCAB,), -1)
    partner[:4] = torch.tensor([1, 0, 3, 2])
    more = partner.clone()
    more[4:6] = torch.tensor([5, 4])
    directed = torch.tensor([8, 7, -1, -1, -1, -1, -1, -1, -1])
    relations = {"four": partner, "six": more, "directed": directed, "nobody": NOBODY.partner}
    paired = associating("direct")
    for name, table in relations.items():
        for estimated in (False, True):
            found[f"fresh, {name}, {estimated}"] = [
                asking.fresh_tokens(probe_of(model), Relation(table, estimated))
                for model in (weights, paired)
            ]
    return found


def verdicts() -> Any:
    whole = Coverage(0.8, "positions")
    one = Circuit("induction", ((0, 0),), (), {"match": 3.0, "copy": 2.0}, 0.7, whole)
    less = Circuit("k_hop", ((0, 0),), (), {"match": 9.0, "copy": 5.0}, 0.6, whole)
    held = Circuit(
        "in_weights", (), (Edge(EMBED, OUTPUT, "out"),),
        {"associate": 4.0, "associate direct": 1.0}, 0.9, Coverage(0.6, "tokens"),
    )  # fmt: skip
    other = Circuit("suppression", ((0, 0),), (), {"match": 1.0}, 1.0, whole)
    sets: dict[str, tuple[Circuit, ...]] = {
        "none": (), "one": (one,), "two": (less, one), "weights": (held,),
        "both": (other, one, held), "no effects": (replace(one, effects={}),),
    }  # fmt: skip
    wins = {"icl": 0.65, "iwl": 0.01}
    found: dict[str, Any] = {}
    for name, circuits in sets.items():
        for how, extra in (("alone", ()), ("wins", (wins,)), ("match", (wins, 0.3))):
            found[f"{name}, {how}"] = [
                verdict.features(circuits, *extra),
                verdict.label_probabilities(circuits, *extra),
                verdict.predicted_accuracy(circuits, *extra),
            ]
    steep = verdict.Logistic(-800.0, {"x": 1.0})
    found["odds"] = [verdict._log_odds(x) for x in (0.0, 0.02, 0.021, 0.5, 0.98, 0.99, 1.0)]
    found["steep"] = [steep({"x": x}) for x in (0.0, 99.0, 100.0, 101.0, 800.0, 900.0)]
    low = {name: least - 1 for name, (least, _) in verdict.shipped_fit().ranges.items()}
    high = {name: most + 1 for name, (_, most) in verdict.shipped_fit().ranges.items()}
    edge = {name: least for name, (least, _) in verdict.shipped_fit().ranges.items()}
    top = {name: most for name, (_, most) in verdict.shipped_fit().ranges.items()}
    kinds = dict.fromkeys(verdict.shipped_fit().kinds, "unheard of")
    found["outside"] = [
        verdict.outside_training(model) for model in ({}, low, high, edge, top, kinds)
    ]
    return found


def named_once() -> Any:
    """Which of several circuits are listed, and what the model is said to win."""
    got = seen("planted")

    def tried(lookup: Lookup, wins: float, by_match: float, circuit: Circuit | None) -> Any:
        circuit = circuit and replace(circuit, lookup=lookup)
        answering = in_context.Answering(circuit, wins, by_match)
        return in_context._Tried(replace(got, lookup=lookup), answering, circuit)

    def circuit(kind: str, *heads: tuple[int, int], strength: float, **more: Any) -> Circuit:
        return Circuit(kind, heads, (), {}, strength, Coverage(1.0, "positions"), **more)  # type: ignore[arg-type]

    plain = circuit("induction", (0, 0), (1, 0), strength=0.6, parts=(((1, 0), "induction"),))
    skip = circuit("skip", (0, 0), strength=0.7, parts=(((0, 0), "skip"), ((0, 1), "offset")))
    hop = circuit("k_hop", (0, 0), (1, 1), strength=0.8, hops=2)
    closed = replace(hop, strength=0.9, hops=3)
    weak = replace(hop, strength=0.3)
    two, three = Lookup(hops=2), Lookup(hops=3, closed=True)
    form, better = Template((7, 8), 3, 1), replace(skip, strength=0.75)
    runs = {
        "induction": {1: tried(INDUCTION, 0.7, 0.5, plain)},
        "skip and hop": {1: tried(Lookup(2), 0.7, 0.6, skip), 2: tried(two, 0.9, 0.8, hop)},
        "skip, weak hop": {1: tried(Lookup(2), 0.7, 0.6, skip), 2: tried(two, 0.4, 0.3, weak)},
        "closed": {
            1: tried(INDUCTION, 0.2, 0.0, None),
            2: tried(three, 0.9, 0.8, closed),
            3: tried(Lookup(hops=2, closed=True), 0.5, 0.4, weak),
        },
        "none": {1: tried(INDUCTION, 0.3, 0.1, None)},
        "separated": {
            1: tried(Lookup(2), 0.5, 0.4, skip),
            2: tried(Lookup(2, lag=1, template=form), 0.8, 0.7, better),
            3: tried(Lookup(2, lag=1), 0.9, 0.6, skip),
            4: tried(Lookup(2, template=form), 0.9, 0.9, better),
        },
        "empty": {},
    }
    found: dict[str, Any] = {}
    for name, run in runs.items():
        kept = in_context._once(run)
        found[name] = [
            [c.brief() for c in kept],
            in_context._taken(kept),
            in_context._share_won(run),
        ]
    asked = probe_of(MODELS["induction"]())
    for lookup in (INDUCTION, two):
        for strength in (0.29, 0.3, 0.31):
            answering = in_context.Answering(replace(plain, strength=strength), 0.5, 0.5)
            found[f"{lookup}, {strength}"] = [
                in_context._worth_naming(answering, lookup, asked, words)
                for words in (None, torch.arange(4))
            ]
    return found


CASES: dict[str, Callable[[], Any]] = {
    **{name: search(name) for name in MODELS},
    **{
        f"{how}, {'estimated' if estimated else 'given'}": search_with_relation(how, estimated)
        for how in ("direct", "weak", "head")
        for estimated in (False, True)
    },
    **{f"of chance, {seed}": of_chance(seed) for seed in range(16)},
    **{f"related by chance, {seed}": related_by_chance(seed) for seed in range(16)},
    **{f"smallest, {name}": smallest_set(name) for name in SMALLEST},
    **{f"noisy, {kind}": noisy(kind) for kind in ("induction", "association")},
    "streams": streams_asked,
    "separators": separators_found,
    "asking, classes": classes_asked,
    "in context, lookups": lookups_asked,
    "in context, once": named_once,
    "asking": tokens_asked,
    "verdict": verdicts,
}
