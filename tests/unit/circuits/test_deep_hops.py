"""Two hops of a deep model: what makes the second match one, and what does not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import planted
import pytest
import torch
from planted import S

from imir_detect import read_weights
from imir_detect.circuits import deep_hops
from imir_detect.circuits.core import Circuit, Coverage
from imir_detect.circuits.deep_hops import answered_twice, hop_circuit, with_hops
from imir_detect.circuits.deep_seen import Deep
from imir_detect.coordinates.extended import Extended
from imir_detect.coordinates.pathsum import Edge
from imir_detect.weights.run import run_residuals


@cache
def two_hops() -> Deep:
    """L0H0 (one back) -> L1H0 (match) -> L2H0, which matches what L1H0 brought, and says it."""
    model = planted.empty(layers=3)
    planted.previous_token(model)
    planted.matching(model, 1, moves=(S.token, S.second))
    planted.set_head(model, 2, 0, query=S.second, key=S.first, moves=(S.token, S.logit))
    weights = read_weights(model)

    def run(tokens: torch.Tensor) -> Any:
        return run_residuals(model, weights, tokens)

    extended = Extended.take(weights, run, torch.arange(planted.VOCAB), planted.CONTEXT, seed=0)
    return Deep.take(weights, extended, run, seed=0)


def test_answers_two_places_behind_are_counted_by_hand() -> None:
    deep = two_hops()
    assert deep.period == 7
    assert deep.queries.tolist() == [8, 9, 10, 11, 12, 13]
    tokens = deep.extended.tokens[deep.repeated.index]
    top = torch.full_like(deep.top, -1)
    assert answered_twice(replace(deep, top=top)) == 0
    top[:, 8], top[:2, 11] = tokens[:, 10], tokens[:2, 13]
    top[:, 12] = tokens[:, 0]  # two on is the end: not asked
    assert answered_twice(replace(deep, top=top)) == (8 + 2) / (8 * 4)


def test_the_two_matches_and_what_feeds_them_are_one_circuit() -> None:
    found = hop_circuit(two_hops())
    assert found is not None
    assert (found.kind, found.hops, found.heads) == ("k_hop", 2, ((0, 0), (1, 0), (2, 0)))
    assert Edge((1, 0), (2, 0), "Q") in found.edges
    assert dict(found.parts) == {(1, 0): "induction", (2, 0): "induction"}
    assert "feeders named bring 100% of what heads bring" in found.note


def test_it_is_none_where_another_token_is_said() -> None:
    """Three answers in ten name a circuit."""
    deep = two_hops()
    top = deep.top.clone()
    right = answered_twice(deep)
    assert right == 1
    top[:6] = -1
    assert answered_twice(replace(deep, top=top)) == 0.25
    assert hop_circuit(replace(deep, top=top)) is None
    top[5] = deep.top[5]
    assert hop_circuit(replace(deep, top=top)) is not None


@pytest.mark.parametrize("left", ["Q", "K"])
def test_it_is_none_where_no_first_match_leads_the_query(
    left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head that looks two places behind by its keys alone skips a place."""
    fed = deep_hops.fed

    def without(*arguments: Any, **settings: Any) -> Any:
        match, moved = fed(*arguments, **settings)
        for terms in match.values():
            terms |= {edge: 0.0 for edge in terms if edge.port == left}
        return match, moved

    monkeypatch.setattr(deep_hops, "fed", without)
    assert (hop_circuit(two_hops()) is None) == (left == "Q")


def test_its_first_match_is_no_circuit_of_its_own_and_others_stay() -> None:
    def single(kind: Any, head: tuple[int, int], strength: float) -> Circuit:
        return Circuit(kind, (head,), (), {}, strength, Coverage(1.0, "positions"))

    first, other = single("prefix_match", (1, 0), 0.8), single("prefix_match", (1, 1), 0.7)
    back = single("previous_token", (0, 0), 1.0)
    found = with_hops((back, first, other), two_hops())
    assert {c.kind: c.heads for c in found if c.kind != "k_hop"} == {
        "previous_token": ((0, 0),),
        "prefix_match": ((1, 1),),
    }
    assert [c.strength for c in found] == [1.0, 1.0, 0.7]
    deep = two_hops()
    silent = replace(deep, top=torch.full_like(deep.top, -1))
    assert with_hops((back, first), silent) == (back, first)
