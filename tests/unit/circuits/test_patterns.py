"""Attention at fixed places, on patterns written down by hand, and the circuits that follow."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import planted
import pytest
import torch
from torch import Tensor

from imir_detect.circuits.attending import fixed_place_circuits
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import Probe
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.read import read_weights

F64 = torch.float64
HEAD = (0, 0)


@dataclass(frozen=True)
class Seen:
    """Attention and nothing else: (n, head, pos, pos) for every layer."""

    attention: tuple[Tensor, ...]


def one_head(plain: Tensor, repeated: Tensor | None = None, period: int = 0) -> Patterns[Seen]:
    """Patterns of one head, the same in every context."""
    repeated = plain if repeated is None else repeated
    return Patterns(Seen((plain[None, None],)), Seen((repeated[None, None],)), period)


def rows(*values: list[float]) -> Tensor:
    table = torch.zeros(len(values), len(values), dtype=F64)
    for i, row in enumerate(values):
        table[i, : len(row)] = torch.tensor(row, dtype=F64)
    return table


TABLE = rows([1], [0.3, 0.7], [0.1, 0.6, 0.3], [0.2, 0.1, 0.4, 0.3], [0.5, 0.1, 0.1, 0.2, 0.1])


def test_means_over_the_queries_that_have_such_a_token_by_hand() -> None:
    # One back from queries 2, 3, 4; position 0 as the token before is left out.
    assert one_head(TABLE).backs(HEAD, [1])[0][0] == pytest.approx((0.6 + 0.4 + 0.2) / 3)
    assert one_head(TABLE).backs(HEAD, [2])[0][0] == pytest.approx((0.1 + 0.1) / 2)
    assert one_head(TABLE).backs(HEAD, [4])[0] == (0.0, 0.0)
    other = torch.eye(5, dtype=F64)
    assert one_head(other, TABLE).previous(HEAD) == pytest.approx((0.6 + 0.4 + 0.2) / 3)
    assert one_head(other, TABLE[:2, :2]).previous(HEAD) == 0.0


def test_attention_behind_the_copy_by_hand() -> None:
    # Two periods of 2 tokens and one more place: queries 3 and 4, whose copies stand at 1 and 2.
    found = one_head(torch.eye(5, dtype=F64), TABLE, period=2)
    assert found.behind_copy(HEAD, 0) == pytest.approx((0.1 + 0.1) / 2)
    assert found.behind_copy(HEAD, 1) == pytest.approx((0.4 + 0.2) / 2)
    assert found.behind_copy(HEAD, 2) == 0.0  # that is the query itself
    assert one_head(TABLE, TABLE, period=4).behind_copy(HEAD, 0) == 0.0  # no query is left


def test_z_is_standardised_over_all_choices_of_one_entry_a_row() -> None:
    """Under the null every row's entries are permuted: one back holds any of them alike."""
    zs = []
    for chosen in itertools.product(range(3), range(4), range(5)):
        table = TABLE.clone()
        for i, j in zip((2, 3, 4), chosen, strict=True):
            table[i, [i - 1, j]] = table[i, [j, i - 1]]
        zs.append(one_head(table).backs(HEAD, [1])[0][1])
    values = torch.tensor(zs, dtype=F64)
    assert float(values.mean()) == pytest.approx(0, abs=1e-9)
    assert float(values.square().mean()) == pytest.approx(1)
    even = torch.ones(5, 5, dtype=F64).tril() / torch.arange(1, 6, dtype=F64)[:, None]
    assert one_head(even).backs(HEAD, [1])[0] == (pytest.approx((1 / 3 + 1 / 4 + 1 / 5) / 3), 0.0)


def test_a_sink_is_what_all_but_one_in_twenty_contexts_show() -> None:
    # 21 contexts whose attention to position 0 is 0, .05, .. 1 from query 2 on: all but the
    # first exceed .05, the 5 % point. Query 1 is not asked.
    level = torch.linspace(0, 1, 21, dtype=F64)
    attention = torch.zeros(21, 1, 4, 4, dtype=F64)
    attention[:, 0, 2:, 0] = level[:, None]
    attention[:, 0, 1, 0] = 1.0
    seen = Seen((attention,))
    assert Patterns(seen, seen, 2).to_first(HEAD) == pytest.approx(0.05)
    short = Seen((attention[..., :2, :2],))
    assert Patterns(short, short, 1).to_first(HEAD) == 0.0


def test_standard_errors_are_those_over_contexts() -> None:
    generator = torch.Generator().manual_seed(0)
    attention = torch.rand(6, 2, 7, 7, generator=generator, dtype=F64).tril().softmax(-1)
    found = Patterns(Seen((attention,)), Seen((attention,)), 3).errors((0, 1))
    cells = (
        [(i, i - 1) for i in range(2, 7)],  # one back, from query 2 on
        [(i, i - 3) for i in range(4, 7)],  # the earlier copy, in the second period but its first
        [(i, i - 2) for i in range(4, 7)],  # what followed it
    )
    for error, where in zip(found, cells, strict=True):
        means = torch.stack([sum(row[1, i, j] for i, j in where) / len(where) for row in attention])
        assert error == pytest.approx(float(means.std()) / 6**0.5)
    one = Seen((attention[:1],))
    assert Patterns(one, one, 3).errors((0, 1)) == (0.0, 0.0, 0.0)
    # A period of all but one place leaves none behind a copy.
    assert Patterns(Seen((attention,)), Seen((attention,)), 6).errors((0, 1))[1:] == (0.0, 0.0)


# -- circuits --------------------------------------------------------------------------------------

SIZE = 14


@pytest.fixture(scope="module")
def weights() -> ModelWeights:
    return read_weights(planted.empty(layers=1, heads=1))


def circuits(weights: ModelWeights, plain: Tensor) -> list:
    size = len(plain)
    probe = Probe(replace(weights, W_pos=weights.W_pos[:size]), torch.arange(SIZE), size)
    return fixed_place_circuits(probe, one_head(plain))


def looking_back(offset: int, share: float, size: int = SIZE) -> Tensor:
    """Every row gives `share` to the token `offset` back and the rest to all others alike."""
    table = torch.zeros(size, size, dtype=F64)
    for i in range(size):
        table[i, : i + 1] = (1 - share) / max(1, i)
        table[i, max(0, i - offset)] = share if i else 1.0
    return table


@pytest.mark.parametrize(("share", "found"), [(0.29, False), (0.31, True), (0.6, True)])
def test_a_head_that_gives_three_tenths_to_one_back_is_a_previous_token_head(
    weights: ModelWeights, share: float, found: bool
) -> None:
    got = circuits(weights, looking_back(1, share))
    assert [c.kind for c in got] == ["previous_token"] * found
    for circuit in got:
        assert circuit.heads == (HEAD,)
        assert circuit.strength == pytest.approx(share)
        assert circuit.coverage.share == (share > 0.5)  # of places that get more than one half
        assert circuit.note == ""
        assert {edge.port for edge in circuit.edges} == {"Q", "K", "V"}


@pytest.mark.parametrize("offset", [2, 3, 4])
def test_heads_that_look_further_back_say_how_far(weights: ModelWeights, offset: int) -> None:
    (circuit,) = circuits(weights, looking_back(offset, 0.7))
    assert (circuit.kind, circuit.note) == ("offset", f"attends {offset} back")
    assert circuit.strength == pytest.approx(0.7)
    # Coverage is over the queries that have such a token; there all get more than one half.
    assert circuit.coverage.share == 1.0


def test_coverage_is_the_share_of_places_that_get_more_than_one_half(
    weights: ModelWeights,
) -> None:
    table = looking_back(1, 0.9)
    table[2:8] = looking_back(1, 0.45)[2:8]
    (circuit,) = circuits(weights, table)
    assert circuit.coverage.share == pytest.approx(6 / 12)


@pytest.mark.parametrize(("hits", "found"), [(7, False), (8, True)])
def test_a_saturated_head_that_hits_one_back_by_chance_is_none(
    weights: ModelWeights, hits: int, found: bool
) -> None:
    """One-hot rows 2 .. 13: of one back, p = 1 / (i + 1) a row is chance, the variance p (1 - p).
    7 hits of 12 are 4.4 standard deviations too many, 8 are 5.2; 4.5 are asked."""
    table = torch.zeros(SIZE, SIZE, dtype=F64)
    for i in range(SIZE):
        table[i, i - 1 if 2 <= i < 2 + hits else i] = 1.0
    assert bool(circuits(weights, table)) == found


@pytest.mark.parametrize(("share", "found"), [(0.79, False), (0.81, True)])
def test_a_sink_takes_four_fifths(weights: ModelWeights, share: float, found: bool) -> None:
    table = torch.zeros(SIZE, SIZE, dtype=F64)
    table[:, 0] = share
    table[torch.arange(SIZE), torch.arange(SIZE)] += 1 - share
    got = circuits(weights, table)
    assert [c.kind for c in got] == ["position_sink"] * found
    for circuit in got:
        assert circuit.strength == pytest.approx(share)
        assert circuit.coverage.share == 1.0


def test_contexts_of_fewer_than_four_places_say_nothing(weights: ModelWeights) -> None:
    """Two, three or four back of a short context can all be position 0."""
    sink = torch.zeros(4, 4, dtype=F64)
    sink[:, 0] = 1.0
    assert [c.kind for c in circuits(weights, sink)] == ["position_sink"]
    assert circuits(weights, sink[:3, :3]) == []
