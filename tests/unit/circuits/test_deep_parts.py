"""The route for deep models from parts made by hand: what it reads off attention and answers."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from imir_detect.circuits.core import Circuit, Coverage
from imir_detect.circuits.deep import (
    _fixed_places,
    _in_weights,
    _matching,
    copies,
    deep_circuits,
)
from imir_detect.circuits.deep_feeders import fed, wished_key, wished_query, wished_value
from imir_detect.circuits.deep_relation import extended_relation
from imir_detect.circuits.deep_seen import Deep
from imir_detect.circuits.heads import head_table
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import Relation, outlier
from imir_detect.coordinates.carried import Carried
from imir_detect.coordinates.extended import Extended
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, Edge
from imir_detect.weights.attention import Attention, QKNorm
from imir_detect.weights.forward import finish, project, qk_factor
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights

F64 = torch.float64
VOCAB, WIDTH, SIZE, LENGTH, PERIOD = 12, 16, 10, 9, 4
TOKENS = torch.tensor([2, 5, 3, 9, 11, 0, 7, 4, 1, 8])


def random_weights(layers: int = 3, **spec: Any) -> ModelWeights:
    return deepcopy(_random_weights(layers, tuple(spec.items())))


@cache
def _random_weights(layers: int, spec: tuple[tuple[str, Any], ...]) -> ModelWeights:
    settings = {"n_heads": 2, "d_model": WIDTH, "init_range": 0.5, **dict(spec)}
    model = ModelSpec(VOCAB, LENGTH, n_layers=layers, **settings).boot(seed=1)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return read_weights(model)


def extended_of(layers: int, vocab: int = VOCAB) -> Extended:
    g = torch.Generator().manual_seed(4)

    def draw(*shape: int) -> tuple[Tensor, ...]:
        return tuple(torch.randn(*shape, generator=g, dtype=F64) for _ in range(layers + 1))

    return Extended(
        tokens=TOKENS,
        place=draw(LENGTH, WIDTH),
        own=draw(2, SIZE, WIDTH),
        before=draw(2, SIZE, WIDTH),
        rms=tuple(1 + r.abs() for r in draw(LENGTH, 1)),
        named=torch.randint(vocab, (2, SIZE), generator=g),
        lead=torch.zeros(2, SIZE, dtype=F64),
        spread=torch.ones(2, SIZE, dtype=F64),
        contexts=5,
    )


def index_of(n: int = 3) -> Tensor:
    """Rows of two periods of 4 tokens and the first of a third."""
    first = torch.stack([torch.arange(4) + i for i in range(n)])
    return torch.cat([first, first, first[:, :1]], 1)


def carried(weights: ModelWeights, seed: int, attention: dict | None = None) -> Carried:
    """Random deviations; attention as given for some heads, (query, key) -> share, else even."""
    g = torch.Generator().manual_seed(seed)
    even = torch.ones(LENGTH, LENGTH, dtype=F64).tril()
    even = even / even.sum(1, keepdim=True)
    tables = even.expand(weights.n_layers, 3, weights.n_heads, -1, -1).clone()
    for (layer, head), table in (attention or {}).items():
        tables[layer, :, head] = table
    deviation = torch.randn(weights.n_layers + 1, 3, LENGTH, WIDTH, generator=g, dtype=F64)
    return Carried(index_of(), tuple(tables), tuple(deviation))


def looking(offset: int, share: float) -> Tensor:
    """Queries 5 .. 8 give `share` to `offset` after the earlier copy, the rest to themselves."""
    table = torch.eye(LENGTH, dtype=F64)
    for i in range(PERIOD + 1, LENGTH):
        table[i, i] = 1 - share
        table[i, i - PERIOD + offset] = share
    return table


def deep_of(weights: ModelWeights, repeated: dict | None = None, plain: dict | None = None) -> Deep:
    everything = {head: torch.eye(LENGTH, dtype=F64) for head in weights.heads}
    return Deep(
        weights,
        extended_of(weights.n_layers),
        carried(weights, 1, {**everything, **(repeated or {})}),
        carried(weights, 2, {**everything, **(plain or {})}),
        PERIOD,
        torch.full((3, LENGTH), 99),  # no token of the vocabulary is on top
    )


def test_queries_are_those_of_the_second_period_but_its_first() -> None:
    assert deep_of(random_weights()).queries.tolist() == [5, 6, 7, 8]


def test_answers_are_right_where_the_next_token_is_on_top() -> None:
    deep = deep_of(random_weights())
    # Queries 5, 6, 7 have a next token; the first context is answered at 5 and 7 alone.
    top = deep.extended.tokens[index_of()].roll(-1, 1)
    top[0, 6] = 99
    top[1] = 99
    assert replace(deep, top=top).right().tolist() == [[1, 0, 1], [0, 0, 0], [1, 1, 1]]


def test_lift_is_attention_beyond_what_the_same_places_get_where_nothing_repeats() -> None:
    deep = deep_of(random_weights(), {(1, 0): looking(1, 0.7)}, {(1, 0): looking(1, 0.2)})
    assert deep.lift((1, 0), 1) == pytest.approx(0.5)
    assert deep.lift((1, 0), 0) == 0.0
    assert deep.lift((1, 1), 1) == 0.0
    patterns = deep.patterns()
    assert patterns.period == PERIOD
    assert patterns.behind_copy((1, 0), 1) == pytest.approx(0.7)
    assert float(patterns.mean((1, 0))[6, 3]) == pytest.approx(0.2)


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize(("share", "found"), [(0.09, False), (0.11, True)])
def test_a_tenth_of_the_attention_names_a_matching_head(
    offset: int, share: float, found: bool
) -> None:
    weights = random_weights()
    weights.W_O[1, 0] = 0.0  # copies nothing
    got = _matching(deep_of(weights, {(1, 0): looking(offset, share)}))
    kinds = ["duplicate_token" if offset == 0 else "prefix_match"]
    assert [c.kind for c in got] == kinds * found
    for circuit in got:
        assert circuit.heads == ((1, 0),)
        assert circuit.strength == pytest.approx(share)
        assert circuit.note.endswith("; attention predicted from extended embeddings")
        assert {e.source for e in circuit.edges} == {EMBED}


def copying(sign: float, layers: int = 3) -> Deep:
    """L1H0 looks behind the copy and its output-value map gives each sampled token `sign` nats."""
    weights = random_weights(layers)
    for name in ("W_V", "W_O", "W_U"):
        getattr(weights, name).zero_()
    basis = torch.eye(WIDTH, dtype=F64)
    weights.W_U[:, TOKENS] = basis[:, :SIZE]
    weights.W_V[1, 0] = basis[:, : weights.W_V.shape[-1]]
    weights.W_O[1, 0] = sign * basis[: weights.W_V.shape[-1]]
    deep = deep_of(weights, {(1, 0): looking(1, 0.6)})
    own = tuple(basis[:SIZE].expand(2, -1, -1) * 4.0 for _ in range(layers + 1))
    rms = tuple(torch.full((LENGTH, 1), 2.0, dtype=F64) for _ in range(layers + 1))
    return replace(deep, extended=replace(deep.extended, own=own, rms=rms))


def test_the_nats_of_a_copy_by_hand() -> None:
    # Eight of the ten tokens pass a head of width 8: 4 / 2 nats on the diagonal, 0 elsewhere.
    margin, z = copies(copying(1.0), (1, 0))
    own = torch.tensor([2.0] * 8 + [0.0] * 2, dtype=F64)
    assert margin == pytest.approx(0.6 * float(own.mean()))
    assert z == pytest.approx(float(own.mean() / own.std()) * math.sqrt(10))
    other = copying(1.0)
    cut = replace(other.weights, W_U=other.weights.W_U[:, :5], b_U=other.weights.b_U[:5])
    assert copies(replace(other, weights=cut), (1, 0)) == (0.0, 0.0)


def test_copying_behind_the_copy_is_induction_and_its_negative_is_suppression() -> None:
    (found,) = _matching(copying(1.0))
    assert (found.kind, found.parts) == ("induction", (((1, 0), "induction"),))
    assert Edge((1, 0), OUTPUT, "out") in found.edges
    assert found.effects["copy"] == pytest.approx(0.6 * 1.6)
    assert found.strength == 0.0  # the model is right nowhere
    (pushed,) = _matching(copying(-1.0))
    assert pushed.kind == "suppression"
    assert pushed.effects == {"copy": pytest.approx(-0.6 * 1.6)}
    assert pushed.strength == pytest.approx(0.6)


def test_strength_and_coverage_of_induction_are_those_of_the_run() -> None:
    deep = copying(1.0)
    top = deep.extended.tokens[index_of()].roll(-1, 1)
    top[:2, 6] = 99  # two of three contexts go wrong at the second of three queries
    (found,) = _matching(replace(deep, top=top))
    assert found.strength == pytest.approx(7 / 9)
    assert found.coverage.share == pytest.approx(2 / 3)


def turned(name: str) -> ModelWeights:
    if name == "rotary":
        return random_weights(position="rotary")
    weights = random_weights()
    if name == "query-key norm":
        g = torch.Generator().manual_seed(5)
        gains = [1 + 0.3 * torch.randn(2, WIDTH // 2, generator=g, dtype=F64) for _ in range(2)]
        kind = Attention(qk_norm=QKNorm(gains[0], gains[1], together=False, eps=1e-6))
        return replace(weights, attention=(kind,) * 3)
    return weights


@pytest.mark.parametrize("side", ["K", "Q"])
@pytest.mark.parametrize("name", ["plain", "rotary", "query-key norm"])
def test_a_wish_is_the_slope_of_the_score(name: str, side: str) -> None:
    """A push of the residual where a head reads raises the wanted score by its product with the
    wish; at the query, over the mean score of the keys that it sees."""
    weights = turned(name)
    deep = deep_of(weights)
    head = layer, index = 2, 1
    wanted = deep.queries - PERIOD + 1
    wish = wished_key(deep, head) if side == "K" else wished_query(deep, head)
    assert torch.equal(wish.place, wanted if side == "K" else deep.queries)
    rows = deep.extended.place[layer] + deep.repeated.deviation[layer]
    g = torch.Generator().manual_seed(6)
    push = torch.randn(rows.shape, generator=g, dtype=F64)
    q, k = project(weights, layer, "Q", rows), project(weights, layer, "K", rows)
    f, h = qk_factor(weights, layer, q), qk_factor(weights, layer, k)
    query = finish(weights, layer, "Q", q, f)[:, index]
    key = finish(weights, layer, "K", k, h)[:, index]
    moved = project(weights, layer, side, rows + push)
    if side == "K":
        rise = finish(weights, layer, "K", moved, h)[:, index] - key
        exact = (query[:, deep.queries] * rise[:, wanted]).sum(-1)
    else:
        rise = finish(weights, layer, "Q", moved, f)[:, index] - query
        scores = rise[:, deep.queries] @ key.transpose(1, 2)
        exact = torch.stack(
            [
                scores[:, i, place] - scores[:, i, : at + 1].mean(1)
                for i, (at, place) in enumerate(
                    zip(deep.queries.tolist(), wanted.tolist(), strict=True)
                )
            ],
            1,
        )
    assert torch.allclose((wish.direction * push[:, wish.place]).sum(-1), exact, atol=1e-9)


def test_the_wished_value_is_the_slope_of_the_logit() -> None:
    """What a push at the attended place does to the logit of its token, over the sampled ones."""
    weights = random_weights()
    g = torch.Generator().manual_seed(9)
    pattern = torch.rand(LENGTH, LENGTH, generator=g, dtype=F64).tril().softmax(1)
    deep = deep_of(weights, {(1, 1): pattern})
    wish = wished_value(deep, (1, 1))
    push = torch.randn(3, len(wish.place), WIDTH, generator=g, dtype=F64)
    typical = deep.extended.rms[-1][1:].mean()
    logits = push @ weights.W_OV(1, 1) @ weights.W_U[:, TOKENS] / typical
    for n in range(3):
        for i, (at, place) in enumerate(zip(deep.queries, wish.place, strict=True)):
            token = deep.repeated.index[n, place]
            rise = logits[n, i, token] - logits[n, i].mean()
            exact = pattern[at, place] * rise
            assert float(wish.direction[n, i] @ push[n, i]) == pytest.approx(float(exact), abs=1e-9)


def test_terms_are_what_each_earlier_head_brings_along_the_wish() -> None:
    weights = random_weights()
    g = torch.Generator().manual_seed(8)
    attention = {
        head: torch.rand(LENGTH, LENGTH, generator=g, dtype=F64).tril().softmax(1)
        for head in weights.heads
    }
    deep = deep_of(weights, attention)
    targets = ((2, 1), (1, 0))
    match, moved = fed(deep, targets)
    wishes = {"K": wished_key, "Q": wished_query, "V": wished_value}
    for target in targets:
        earlier = {(layer, head) for layer in range(target[0]) for head in (0, 1)}
        assert {e.source for e in match[target] if e.port == "K"} == earlier
        assert {e.source for e in match[target] if e.port == "Q"} == earlier
        assert {e.source for e in moved[target]} == earlier | {EMBED}
        rms = deep.extended.rms[target[0]]
        for edge, nats in (match[target] | moved[target]).items():
            assert edge.target == target
            wish = wishes[edge.port](deep, target)
            if edge.source == EMBED:
                continue
            total = 0.0
            for n in range(3):
                offered = deep.repeated.deviation[edge.source[0]][n] @ weights.W_OV(*edge.source)
                written = deep.repeated.attention[edge.source[0]][n, edge.source[1]] @ offered
                mean = written.mean(0)
                for i, place in enumerate(wish.place.tolist()):
                    total += float(wish.direction[n, i] @ (written[place] - mean) / rms[place])
            assert nats == pytest.approx(total / 12, abs=1e-9)
        wish = wished_value(deep, target)
        read = deep.repeated.deviation[target[0]][:, wish.place]
        whole = float((wish.direction * read).sum(-1).mean())
        assert sum(moved[target].values()) == pytest.approx(whole, abs=1e-9)


def test_heads_that_rest_on_the_first_place_are_one_circuit() -> None:
    sink = torch.zeros(LENGTH, LENGTH, dtype=F64)
    sink[:, 0] = 1.0
    weaker = 0.9 * sink + 0.1 * torch.eye(LENGTH, dtype=F64)
    back = torch.zeros(LENGTH, LENGTH, dtype=F64)
    back[torch.arange(LENGTH), (torch.arange(LENGTH) - 1).clamp(min=0)] = 1.0
    weights = random_weights()
    plain = {(0, 1): sink, (2, 0): weaker, (1, 1): back}
    deep = deep_of(weights, plain, plain)
    probe = Probe(weights, TOKENS, LENGTH)
    previous, resting = _fixed_places(probe, deep)
    assert (previous.kind, previous.heads) == ("previous_token", ((1, 1),))
    assert (resting.kind, resting.heads) == ("position_sink", ((0, 1), (2, 0)))
    assert resting.strength == pytest.approx(0.95)
    assert len(resting.edges) == 6
    assert resting.note == "2 heads that rest on position 0"
    everything = deep_circuits(probe, deep, Relation(torch.full((VOCAB,), -1), True))
    assert [c.kind for c in everything] == ["previous_token", "position_sink"]
    alone = deep_of(weights)
    assert _fixed_places(probe, alone) == []


def test_association_counts_the_first_period_where_nothing_repeats() -> None:
    weights = random_weights()
    deep = deep_of(weights)
    partner = torch.full((VOCAB,), -1)
    # Places 1 and 2 of the first period hold the sampled tokens 1, 2 | 2, 3 | 3, 4.
    partner[TOKENS[1]], partner[TOKENS[2]], partner[TOKENS[3]] = 6, 10, 6
    top = deep.top.clone()
    top[0, 1] = 6  # token 1: right
    top[0, 2] = 10  # token 2: right here,
    top[1, 1] = 0  # wrong there: held on half of its places, which is not more than half
    top[1, 2] = top[2, 1] = 6  # token 3: right twice
    margin = torch.zeros(VOCAB, dtype=F64)
    margin[TOKENS[1:4]] = torch.tensor([1.0, 2.0, 6.0], dtype=F64)
    relation = Relation(partner, True, margin)
    found = _in_weights(replace(deep, top=top), relation)
    assert found.strength == pytest.approx(4 / 5)  # token 4 has no partner and is not asked
    assert found.coverage.share == pytest.approx(2 / 3)
    assert found.effects == {"associate": pytest.approx(3.0)}
    assert "3 of 10 sampled tokens" in found.note
    given = _in_weights(replace(deep, top=top), Relation(partner, False))
    assert given.effects == {}
    nobody = _in_weights(deep, Relation(torch.full((VOCAB,), -1), False))
    assert (nobody.strength, nobody.coverage.share) == (0.0, 0.0)
    probe = Probe(weights, TOKENS, LENGTH)
    assert [c.kind for c in deep_circuits(probe, replace(deep, top=top), relation)] == [
        "in_weights"
    ]


# -- the relation of a deep model ------------------------------------------------------------------


def test_a_relation_needs_both_halves_a_clear_lead_and_more_than_chance() -> None:
    weights = random_weights()
    bar = float(outlier(torch.tensor([VOCAB - 2]), 0.95))
    named = torch.stack([torch.arange(SIZE)] * 2)
    lead = torch.full((2, SIZE), bar - 0.01, dtype=F64)
    lead[:, :9] = bar + 0.5
    extended = replace(extended_of(3), named=named, lead=lead)
    found = extended_relation(weights, extended)
    assert dict(found.pairs()) == {int(TOKENS[i]): i for i in range(9)}
    assert found.margin is not None
    assert float(found.margin[TOKENS[0]]) == pytest.approx(0.5)
    # One half that names another token, or leads by less, is enough to lose a pair.
    other = named.clone()
    other[1, 0] = 7
    weak = lead.clone()
    weak[0, 1] = bar - 0.5
    found = extended_relation(weights, replace(extended, named=other, lead=weak))
    assert set(found.named.tolist()) == set(TOKENS[2:9].tolist())
    # Twice the spread asks for twice the lead.
    wide = replace(extended, spread=2 * extended.spread)
    assert extended_relation(weights, wide).coverage == 0


@pytest.mark.parametrize(("found", "apart"), [(False, True), (True, True), (False, False)], ids=str)
def test_as_many_clear_tokens_as_chance_allows_are_no_relation(found: bool, apart: bool) -> None:
    """Of 40 tokens each is clear by chance at .05: the least count whose tail is below 1e-6. Tokens
    that all name one partner count once."""
    scipy, size = pytest.importorskip("scipy.stats"), 40
    need = next(k for k in range(size) if scipy.binom.sf(k - 1, size, 0.05) < 1e-6)
    count = need - (apart and not found)
    weights = random_weights()
    big = replace(
        weights,
        W_E=weights.W_E.repeat(4, 1),
        W_U=weights.W_U.repeat(1, 4),
        b_U=weights.b_U.repeat(4),
    )
    lead = torch.zeros(2, size, dtype=F64)
    lead[:, :count] = 9.0
    extended = replace(
        extended_of(3),
        tokens=torch.arange(size),
        named=torch.arange(size).expand(2, size) * apart,
        lead=lead,
        spread=torch.ones(2, size, dtype=F64),
    )
    assert (extended_relation(big, extended).coverage > 0) == found


# -- one row a head --------------------------------------------------------------------------------


def circuit(kind: str, *heads: tuple[int, int], strength: float = 0.9, **more: Any) -> Circuit:
    return Circuit(kind, heads, (), {}, strength, Coverage(1.0, "positions"), **more)  # type: ignore[arg-type]


def roles(deep: Deep, *circuits: Circuit, extended: Extended | None = None) -> list[str]:
    probe = Probe(deep.weights, TOKENS, LENGTH)
    relation = Relation(torch.full((VOCAB,), -1), True)
    table = head_table(probe, deep.patterns(), relation, circuits, extended)
    assert [(row.layer, row.head) for row in table] == list(deep.weights.heads)
    return [row.role for row in table]


def test_roles_are_those_of_the_strongest_circuit_that_gives_one() -> None:
    deep = deep_of(random_weights(2))
    parts = (((0, 0), "previous_token"), ((1, 0), "induction"))
    induction = circuit("induction", (0, 0), (1, 0), parts=parts)
    sink = circuit("position_sink", (0, 0), (1, 1), strength=1.0)
    offset = circuit("offset", (0, 0), strength=0.95)
    assert roles(deep, sink, induction) == ["previous_token", "none", "induction", "position_sink"]
    # The stronger of two; a sink only where nothing else is said.
    assert roles(deep, sink, induction, offset)[0] == "offset"
    # An in-context circuit that does not work gives no roles, others do.
    failed = replace(induction, strength=0.5)
    assert roles(deep, failed) == ["none"] * 4
    assert roles(deep, replace(offset, strength=0.4))[0] == "offset"


def test_a_duplicate_token_head_must_look_there_from_most_places() -> None:
    weights = random_weights(2)
    found = circuit("duplicate_token", (1, 0))
    few, many = (deep_of(weights, {(1, 0): looking(0, share)}) for share in (0.29, 0.31))
    assert roles(few, found)[2] == "none"
    assert roles(many, found)[2] == "duplicate_token"
    # The predicted attention of deep models is weaker: there the circuit itself decides.
    assert roles(few, found, extended=few.extended)[2] == "duplicate_token"


def test_rows_of_heads_hold_attention_and_shares_of_tokens() -> None:
    deep = copying(1.0, layers=2)
    weights = deep.weights
    weights.W_E.copy_(torch.zeros(VOCAB, WIDTH))
    weights.W_E[TOKENS] = torch.eye(SIZE, WIDTH, dtype=F64)
    probe = Probe(weights, TOKENS, LENGTH)
    partner = torch.full((VOCAB,), -1)
    partner[TOKENS[:2]] = TOKENS[:2]
    patterns: Patterns[Any] = deep.patterns()
    for extended in (None, deep.extended):
        table = head_table(probe, patterns, Relation(partner, False), (), extended)
        row = table[2]
        assert row.induction == pytest.approx(0.6)
        assert row.duplicate_token == 0.0
        assert row.copying == pytest.approx(0.8)  # eight of ten tokens pass the head
        assert row.suppression == 0.0
        assert row.association == 1.0  # the two that are named pass
        assert (table[0].copying, table[0].association) == (0.0, 0.0)
    cut = replace(weights, W_U=weights.W_U[:, :5], b_U=weights.b_U[:5])
    row = head_table(replace(probe, weights=cut), patterns, Relation(partner, False), ())[2]
    assert (row.copying, row.suppression, row.association) == (None, None, None)
