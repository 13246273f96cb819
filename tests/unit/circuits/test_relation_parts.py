"""The steps by which a relation is estimated, each against its definition."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import (
    Relation,
    _agreeing_parts,
    _centred,
    _meeting,
    _more_than_chance,
    _mutual,
    _ReadOut,
    _seeds,
    directly_paired,
    estimate_relation,
    row_null,
)
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights

F64 = torch.float64
NAN, INF = float("nan"), float("inf")


def random_weights(vocab: int = 9, context: int = 5, **spec: object) -> ModelWeights:
    settings = {"n_heads": 2, "d_model": 8, "init_range": 0.6, "norm": "RMS", **spec}
    model = ModelSpec(vocab, context, **settings).boot(seed=2)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return read_weights(model)


def test_centring_leaves_the_diagonal_and_unknown_entries_out_by_hand() -> None:
    # Off the diagonal: columns {4, 6}, {2, 8}, {5} (one unknown) have means 5, 5, 5.
    table = torch.tensor([[9.0, 2, 5], [4, 9, NAN], [6, 8, 9]], dtype=F64)
    found = _centred(table)
    # Left: rows (-3, 0), (-1), (1, 3), whose means -1.5, -1, 2 go.
    wanted = torch.tensor([[-INF, -1.5, 1.5], [0, -INF, -INF], [-1, 1, -INF]], dtype=F64)
    assert torch.equal(found, wanted)
    assert table[0, 0] == 9.0  # the table that was given is left alone


@pytest.mark.parametrize(("size", "unknown"), [(9, 0), (40, 3)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_the_largest_of_normal_draws_stays_below_its_null_so_often(
    level: float, size: int, unknown: int
) -> None:
    """Whatever the mean and the spread; entries of -inf are no draws."""
    generator = torch.Generator().manual_seed(1)
    rows = 3 * torch.randn(6000, size, dtype=F64, generator=generator) + 4
    rows[:, :unknown] = -INF
    top = rows.max(1)
    below = float((top.values < row_null(rows, top.indices, level=level)).double().mean())
    assert below == pytest.approx(level, abs=0.02)


def test_a_row_without_spread_is_its_own_null() -> None:
    assert row_null(torch.tensor([[3.0, 1, 1, 1]], dtype=F64), torch.tensor([0])).item() == 1.0


def test_pairs_are_mutual_when_each_names_the_other() -> None:
    assert _mutual(torch.tensor([1, 0, 3, 0, 4])).tolist() == [True, True, False, False, True]


def test_a_chance_of_ones_own_may_be_given() -> None:
    scipy = pytest.importorskip("scipy.stats")
    for count in range(4, 12):
        tail = scipy.binom.sf(count - 1, 40, 0.05)
        assert _more_than_chance(flags(count, 40), chance=0.05) == (tail < 1e-3), count


def flags(count: int, size: int) -> Tensor:
    return torch.arange(size) < count


def test_agreement_beyond_chance_is_a_binomial_tail() -> None:
    """Of 41 tokens each agrees by chance with one partner in 40."""
    scipy = pytest.importorskip("scipy.stats")
    for count in range(0, 12):
        tail = scipy.binom.sf(count - 1, 41, 1 / 40)
        assert _more_than_chance(flags(count, 41)) == (count >= 4.1 and tail < 1e-3), count
        assert _more_than_chance(flags(count, 41), tries=30) == (count >= 4.1 and 30 * tail < 1e-3)
    for count in range(0, 20, 2):
        tail = scipy.binom.sf(count // 2 - 1, 20, 1 / 40)
        wanted = count >= 4.1 and tail < 1e-3
        assert _more_than_chance(flags(count, 41), together=2) == wanted, count
    # Of 1001 tokens a tenth is asked, however unlikely fewer are.
    assert not _more_than_chance(flags(100, 1001))
    assert _more_than_chance(flags(101, 1001))


# -- the read-out ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taken() -> tuple[Probe, Tensor, _ReadOut]:
    probe = Probe(random_weights(), torch.arange(1, 9), 5, seed=3)
    tokens = torch.arange(1, 9)
    return probe, tokens, _ReadOut.take(probe, tokens, stream=2)


def test_the_read_out_is_the_models_logits_where_a_token_has_not_been_shown(taken) -> None:
    probe, tokens, read_out = taken
    weights = probe.weights
    assert read_out.asked.shape == (24, 5)  # three contexts a token
    shown = tokens[read_out.asked]
    trace = sum_paths(weights, shown)
    logits = (trace.final @ weights.W_U + weights.b_U)[..., tokens]
    heads = [w.sum(1) * trace.inverse_rms[-1] @ weights.W_U for w in trace.written]
    assert len(read_out.parts) == 3
    heads.insert(0, weights.W_E[shown] * trace.inverse_rms[-1] @ weights.W_U)  # the direct path
    for n in range(24):
        for place in range(5):
            for column, token in enumerate(tokens.tolist()):
                found = read_out.logits[n, place, column]
                parts = [part[n, place, column] for part in read_out.parts]
                if token in shown[n, : place + 1].tolist():
                    assert all(map(math.isnan, (found, *parts)))
                    continue
                assert float(found) == pytest.approx(float(logits[n, place, column]))
                for part, head in zip(parts, heads, strict=True):
                    assert float(part) == pytest.approx(float(head[n, place, token]))
    assert 0 < read_out.floor < 1e-3  # nats: round-off of float32 weights


def test_a_table_is_the_mean_over_the_places_where_a_token_stands(taken) -> None:
    _, _, read_out = taken
    places = torch.tensor([1, 3])
    for part, source in ((None, read_out.logits), (1, read_out.parts[1])):
        wanted = torch.full((8, 8), NAN, dtype=F64)
        for token in range(8):
            rows = [source[n, p] for n, p in (read_out.asked == token).nonzero().tolist()
                    if p in (1, 3)]  # fmt: skip
            wanted[token] = torch.stack(rows).nanmean(0)
        assert torch.allclose(read_out.table(places, part=part), _centred(wanted))


def made(*parts: Tensor) -> _ReadOut:
    """One context for each token, which stands at places 0 and 1 of it; parts add up."""
    asked = torch.arange(len(parts[0]))[:, None].expand(-1, 2)
    shares = tuple(torch.stack([part] * 2, 1) for part in parts)
    return _ReadOut(asked, sum(shares, torch.zeros(())), shares, 0.0)


def pairing(partner: list[int], strength: float = 1.0) -> Tensor:
    """Each token's row is `strength` at its partner and 0 elsewhere."""
    table = torch.zeros(len(partner), len(partner), dtype=F64)
    for token, other in enumerate(partner):
        if other >= 0:
            table[token, other] = strength
    return table


def test_places_that_answer_are_those_near_the_best() -> None:
    partner = [1, 0, 3, 2, 5, 4]
    right = pairing(partner)
    wrong = pairing([2, 3, 4, 5, 0, 1])
    half = torch.cat([right[:3], wrong[3:]])
    logits = torch.stack([right, right, half, wrong], 1)
    asked = torch.arange(6)[:, None].expand(-1, 4)
    read_out = _ReadOut(asked, logits, (), 0.0)
    seeds = torch.ones(6, dtype=torch.bool)
    assert read_out.places_that_answer(seeds, torch.tensor(partner)).tolist() == [1]
    # Of the tokens 0 .. 2 alone, half of the table is all of it.
    seeds[3:] = False
    assert read_out.places_that_answer(seeds, torch.tensor(partner)).tolist() == [1, 2]


def test_a_part_and_the_rest_must_name_the_same_partner() -> None:
    partner = [1, 0, 3, 2, 5, 4, 7, 6, 9, 8]
    other = [2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    places = torch.tensor([1])

    def agreeing(direct: Tensor, layer: Tensor) -> tuple[list[bool], list[int]]:
        found, named = _agreeing_parts(made(direct, layer), places)
        return found.tolist(), named.tolist()

    both = agreeing(pairing(partner), pairing(partner, 2.0))
    assert both == ([True] * 10, partner)
    # Where one part is all there is, the rest is nothing, and agrees with nothing.
    assert agreeing(pairing(partner), pairing([-1] * 10))[0] == [False] * 10
    assert agreeing(pairing([-1] * 10), pairing(partner))[0] == [False] * 10
    # Two parts that name different partners agree for none.
    assert agreeing(pairing(partner), pairing(other, 2.0))[0] == [False] * 10


def test_tables_meet_by_the_shares_of_what_they_name() -> None:
    # Shares 1/2, 1/4, 1/4, 0 and 1/4, 3/4, 0, 0: 1/8 + 3/16, less than one in three.
    named, other = torch.tensor([0, 0, 1, 2]), torch.tensor([1, 1, 0, 1])
    assert _meeting(named, other) == pytest.approx(1 / 3)
    assert _meeting(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 0, 0])) == 10 / 16
    assert _meeting(torch.arange(9), torch.arange(9).flip(0)) == 1 / 8


def nothing_is_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    def null(row: Tensor, top: Tensor, *, level: float = 0.5) -> Tensor:
        return torch.full((len(row),), INF, dtype=F64)

    monkeypatch.setattr("imir_detect.circuits.relation.row_null", null)


def test_tables_that_favour_the_same_tokens_meet_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 tokens 8 agree, far more than one in 39 would; yet a third of either table's rows name
    token 0 or 1, so that 5 or so of them meet however the rows stand."""
    scipy = pytest.importorskip("scipy.stats")
    assert 4 * scipy.binom.sf(7, 40, 1 / 39) < 1e-3
    nothing_is_clear(monkeypatch)
    spread = [(i + 7) % 40 for i in range(40)]
    first, second = list(spread), [(i + 19) % 40 for i in range(40)]
    first[2:22] = [0] * 10 + [1] * 10
    second[2:22] = [0] * 4 + [1] * 6 + [0] * 6 + [1] * 4
    agree = sum(a == b for a, b in zip(first, second, strict=True))
    assert agree == 8
    found, _ = _agreeing_parts(made(pairing(first), pairing(second, 0.9)), torch.tensor([1]))
    assert not found.any()
    # As many that name as many partners are no chance.
    first[2:22], second[2:22] = spread[2:22], second[22:] + second[20:22]
    second[2:10] = first[2:10]
    found, _ = _agreeing_parts(made(pairing(first), pairing(second, 0.9)), torch.tensor([1]))
    assert found.nonzero()[:, 0].tolist() == list(range(2, 10))


def test_what_agrees_must_agree_on_other_contexts_beyond_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 40 tokens 8 agree on the first contexts, p = 1e-5; on others 8, 12 or none do."""

    def agreeing(count: int) -> _ReadOut:
        one, other = [(i + 7) % 40 for i in range(40)], [(i + 19) % 40 for i in range(40)]
        return made(pairing(one), pairing(one[:count] + other[count:], 0.9))

    def seeds(n: int) -> list[int]:
        return _seeds(agreeing(8), agreeing(n))[0].nonzero()[:, 0].tolist()  # type: ignore[no-any-return]

    # Of as many whose entries lead their rows clearly, too, there is no doubt: one in 400 would.
    assert [seeds(n) for n in (0, 5, 8)] == [[], list(range(8)), list(range(8))]
    nothing_is_clear(monkeypatch)
    assert [seeds(n) for n in (0, 8, 12)] == [[], [], list(range(8))]


def test_direct_pairs_by_hand() -> None:
    weights = random_weights(12, 5, d_model=16, norm=None)
    partner = [1, 0, 3, 2, 5, 4, 7, 6, -1, -1, -1, -1]
    weights.W_E.copy_(torch.eye(12, 16))
    weights.W_U.copy_(torch.zeros(16, 12))
    weights.W_U[:12] = pairing(partner)
    weights.W_U[8:12] += 0.3 * torch.randn(4, 12, generator=torch.Generator().manual_seed(0))
    probe = Probe(weights, torch.arange(12), 5)
    assert set(range(8)) <= set(directly_paired(probe).tolist())
    # Of three tokens nothing is said.
    assert directly_paired(Probe(weights, torch.arange(3), 5)).tolist() == []
    # One pair of twelve is no more than chance.
    weights.W_U[:12] = pairing([1, 0, *[0] * 10])
    assert directly_paired(Probe(weights, torch.arange(12), 5)).tolist() == []


def test_pairs_are_listed_by_their_evidence() -> None:
    partner = torch.tensor([1, 0, 3, -1])
    margin = torch.tensor([0.5, 2.0, 1.0, 0.0], dtype=F64)
    assert Relation(partner, True, margin).pairs() == [(1, 0), (2, 3), (0, 1)]
    assert Relation(partner, True, margin).pairs(1) == [(1, 0)]


def test_of_many_tokens_a_seeded_sample_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of pairs, of whose 24 tokens 12 are looked at: only those can be named."""
    weights = random_weights(24, 6, d_model=24, norm=None)
    partner = [i ^ 1 for i in range(24)]
    for name in ("W_pos", "W_V", "W_O", "b_O", "b_U"):
        getattr(weights, name).zero_()
    weights.W_E.copy_(torch.eye(24))
    weights.W_U.copy_(pairing(partner, 4.0))
    probe = Probe(weights, torch.arange(24), 6)
    assert directly_paired(probe).tolist() == list(range(24))
    monkeypatch.setattr("imir_detect.circuits.relation.MOST_TOKENS", 12)
    assert directly_paired(probe).tolist() == []
    found = estimate_relation(probe)
    assert found.estimated
    assert len(found.named) <= 12
    assert all(partner[a] == b for a, b in found.pairs())
