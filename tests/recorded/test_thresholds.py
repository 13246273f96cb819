"""What is met exactly: on which side of each threshold the equal case falls."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from recorded_algorithm import objective_of
from recorded_deep import deep_of
from recorded_parts import made, probe_of, seen, soft_induction
from small_models import F64, random_weights
from torch import Tensor

from imir_detect.circuits import (
    association,
    attending,
    attribution,
    deep,
    eliminate,
    graph_induction,
    heads,
    in_context,
    induction,
    separators,
    smallest,
)
from imir_detect.circuits import probe as probe_module
from imir_detect.circuits.attribution import ENOUGH
from imir_detect.circuits.causal_graph import CausalEdge, CausalGraph
from imir_detect.circuits.core import WORKS
from imir_detect.circuits.exhaustive import Additive, best_subset
from imir_detect.circuits.matched import FEWEST, coverage_of
from imir_detect.circuits.probe import BEST, NEAR_BEST, Probe, best_places, near_best
from imir_detect.circuits.relation import Relation
from imir_detect.coordinates.effects import read_selection, read_shift
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, Edge
from imir_detect.frame.lookups import INDUCTION, Lookup
from imir_detect.frame.template import Template

ONE = {Edge(EMBED, (1, 0), "V"), Edge((1, 0), OUTPUT, "out")}
NOBODY = Relation(torch.full((9,), -1), False)
ABOVE, BELOW = math.nextafter, lambda x, _=0.0: math.nextafter(x, -math.inf)


def shares(values: list[float]) -> Callable[..., Tensor]:
    """In place of `answers`: shares one after the other, the last one for ever."""
    left = list(values)

    def told(*_: Any) -> Tensor:
        return torch.tensor([left.pop(0) if len(left) > 1 else left[0]], dtype=F64)

    return told


# -- heads that attend -----------------------------------------------------------------------------


class Patterns:
    """Attention as told, for every head alike."""

    def __init__(self, back: tuple[float, float] = (0.0, 0.0), first: float = 0.0) -> None:
        self.back, self.first = back, first

    def backs(self, head: Any, offsets: list[int]) -> list[tuple[float, float]]:
        return [self.back for _ in offsets]

    def to_first(self, head: Any) -> float:
        return self.first

    def mean(self, head: Any) -> Tensor:
        return torch.full((9, 9), 0.5, dtype=F64)

    def behind_copy(self, head: Any, offset: int) -> float:
        return self.back[0]

    previous = to_first


@pytest.mark.parametrize(
    ("patterns", "kinds"),
    [
        (Patterns((attending.ATTENDS, 9.0)), set()),
        (Patterns((ABOVE(attending.ATTENDS, 1), 9.0)), {"previous_token", "offset"}),
        (Patterns((0.9, attending.SIGNIFICANT)), set()),
        (Patterns((0.9, ABOVE(attending.SIGNIFICANT, 9))), {"previous_token", "offset"}),
        (Patterns(first=attending.SINKS), set()),
        (Patterns(first=ABOVE(attending.SINKS, 1)), {"position_sink"}),
    ],
    ids=("attends", "attends more", "sure", "surer", "rests", "rests more"),
)
def test_a_fixed_place_takes_more_than_its_bar(patterns: Patterns, kinds: set[str]) -> None:
    found = attending.fixed_place_circuits(probe_of(soft_induction()), patterns)  # type: ignore[arg-type]
    assert {c.kind for c in found} == kinds
    # Half of the attention holds no place.
    assert {c.coverage.share for c in found} <= {0.0}


def test_places_contexts_and_attention_at_their_bar_are_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    got, cells = seen("planted"), INDUCTION.cells(9)
    lift = torch.full((4,), 0.25, dtype=F64)
    share = coverage_of(cells, 9, INDUCTION).share
    count = len(got.contexts)
    bars = {"FEW": share, "FEWEST": count, "ATTENDS": 0.25}
    for name, value in bars.items():
        monkeypatch.setattr(attending, name, value)
    assert attending._enough(cells, got, lift)
    for name, value in bars.items():
        with monkeypatch.context() as only:
            only.setattr(attending, name, value + 1 if name == "FEWEST" else ABOVE(value, 2))
            assert not attending._enough(cells, got, lift)


def test_suppression_pushes_down_more_often_than_not(monkeypatch: pytest.MonkeyPatch) -> None:
    got, cells = seen("planted"), INDUCTION.cells(9)
    probe = probe_of(soft_induction())
    for pushed, kind in ((WORKS, "prefix_match"), (ABOVE(WORKS, 1), "suppression")):
        monkeypatch.setattr(attending, "_pushed_down", lambda *_, p=pushed: p)
        assert attending._behind_copy(probe, got, (1, 0), cells).kind == kind


def test_a_lookup_further_on_takes_a_head_that_attends_there() -> None:
    probe = probe_of(soft_induction())
    for attends, found in ((in_context.ATTENDS, False), (ABOVE(in_context.ATTENDS, 1), True)):
        asked = in_context._lookups(probe, Patterns((attends, 0.0)))  # type: ignore[arg-type]
        assert (Lookup(2) in asked) == found


def test_a_duplicate_token_head_has_its_role_from_the_bar_on() -> None:
    probe, circuit = probe_of(soft_induction()), made("duplicate_token", (1, 0))
    for attends, role in ((heads.ATTENDS, "duplicate_token"), (BELOW(heads.ATTENDS), "none")):
        table = heads.head_table(probe, Patterns((attends, 0.0)), NOBODY, (circuit,))  # type: ignore[arg-type]
        assert table[2].role == role


# -- what is looked for behind a copy --------------------------------------------------------------


@pytest.mark.parametrize(("right", "found"), [(2, False), (3, True)])
def test_more_than_two_answers_are_worth_a_look(
    monkeypatch: pytest.MonkeyPatch, right: int, found: bool
) -> None:
    assert in_context.FEW_ANSWERS == 2
    told = torch.tensor([1.0] * right + [0.0] * 5)
    monkeypatch.setattr(in_context, "answers", lambda *_: told)
    probe, asked = probe_of(soft_induction()), Lookup(-1)
    assert in_context._ever_answered(probe, asked, None, None, n=8, stream=1) == found


def look(probe: Probe) -> in_context.InContext:
    return in_context.find_in_context(probe, Patterns(), NOBODY, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("right", "looked"), [(FEWEST - 1, 0), (FEWEST, 1)])
def test_eight_contexts_are_enough_to_ask(
    monkeypatch: pytest.MonkeyPatch, right: int, looked: int
) -> None:
    got = seen("planted")
    few = got.within(torch.ones(9, 9, dtype=torch.bool))
    few = replace(few, contexts=few.contexts.select(torch.arange(right)))
    calls: list[int] = []
    answering = induction.Answering(None, 0.25, 0.125)

    def asked(*_: Any, stream: int) -> induction.Answering:
        calls.append(stream)
        return answering

    monkeypatch.setattr(in_context, "_lookups", lambda *_: [INDUCTION])
    monkeypatch.setattr(in_context, "observe", lambda *_, **__: few)
    monkeypatch.setattr(in_context, "ask_for_answers", asked)
    monkeypatch.setattr(in_context, "matching_circuits", lambda *_: [])
    found = look(probe_of(soft_induction()))
    assert len(calls) == looked
    assert (found.wins, found.by_match) == ((0.25, 0.125) if looked else (0.0, 0.0))


def test_more_copies_take_more_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the samples choose places, three times as many where three copies have places."""
    lookups = [INDUCTION, Lookup(hops=2), Lookup(hops=3), Lookup(hops=4)]
    seen_with: list[tuple[int, int]] = []
    screened: list[tuple[int, int]] = []

    def observed(probe: Any, lookup: Lookup, *_: Any, stream: int, n: int, **__: Any) -> Any:
        seen_with.append((stream, n))
        return replace(seen("planted"), lookup=lookup)

    def answered(probe: Any, lookup: Lookup, *_: Any, n: int, stream: int) -> bool:
        screened.append((stream, n))
        return True

    nothing = induction.Answering(None, 0.0, 0.0)
    monkeypatch.setattr(in_context, "_lookups", lambda *_: lookups)
    monkeypatch.setattr(in_context, "observe", observed)
    monkeypatch.setattr(in_context, "_ever_answered", answered)
    monkeypatch.setattr(in_context, "ask_for_answers", lambda *_, **__: nothing)
    monkeypatch.setattr(in_context, "matching_circuits", lambda *_: [])
    look(probe_of(soft_induction(), 40))
    assert screened == [(71, 40), (72, 40), (73, 60), (74, 80)]
    # The last is the second look at induction, for heads that match and answer nothing.
    assert seen_with == [(21, 80), (22, 80), (23, 120), (24, 160), (31, 40)]


def test_what_brings_more_by_the_match_says_what_is_won() -> None:
    circuit = made("induction", (1, 0))

    def tried(lookup: Lookup, wins: float, by_match: float) -> Any:
        answering = induction.Answering(circuit, wins, by_match)
        first = replace(seen("planted"), lookup=lookup)
        return in_context._Tried(first, answering, circuit)

    runs = {1: tried(Lookup(hops=2), 0.5, 0.25), 2: tried(Lookup(hops=3), 0.9, 0.25)}
    assert in_context._share_won(runs) == (0.5, 0.25)
    runs[3] = tried(Lookup(prefix=2), 0.875, 0.375)
    assert in_context._share_won(runs) == (0.875, 0.375)


@pytest.mark.parametrize(
    ("looks", "role"), [(0.25, "previous_token"), (BELOW(0.25), None)], ids=str
)
def test_a_head_looks_from_the_bar_on(
    monkeypatch: pytest.MonkeyPatch, looks: float, role: str | None
) -> None:
    monkeypatch.setattr(induction, "LOOKS", 0.25)
    got = seen("planted")
    rows, match = got.contexts.rows[:1], got.contexts.match[:1]
    attention = torch.zeros_like(got.trace.attention[0])[:1]
    attention[rows, 0, match + 1, match] = looks
    one = replace(
        got,
        contexts=got.contexts.select(torch.tensor([0])),
        trace=replace(got.trace, attention=(attention, attention)),
    )
    assert dict(induction._parts(one, [(0, 0)], {})).get((0, 0)) == role


@pytest.mark.parametrize(("brought", "noted"), [(2.0, False), (BELOW(2.0), True)], ids=str)
def test_less_than_half_of_the_match_explains_nothing(
    monkeypatch: pytest.MonkeyPatch, brought: float, noted: bool
) -> None:
    terms = {"induction": {(0, 0): brought}, "pointer_induction": {(0, 0): 1.0}}
    monkeypatch.setattr(induction, "smallest_that_answers", lambda *_: ({(1, 0): 1.0}, ONE, 0.5))
    monkeypatch.setattr(induction, "ScoreSplit", lambda *_: SimpleNamespace(total=lambda: 4.0))
    monkeypatch.setattr(induction, "_mechanism", lambda *_: terms)
    got = seen("planted")
    probe = probe_of(soft_induction())
    found = induction._answering_circuit(probe, got, INDUCTION.cells(9))
    assert found is not None
    assert ("not on the frame" in found.note) == noted
    assert found.effects["match"] == 4.0


# -- the smallest set that answers -----------------------------------------------------------------


def smallest_of(
    monkeypatch: pytest.MonkeyPatch, told: list[float], *, left: float | None = None
) -> tuple[float, bool]:
    """Strength found of candidates that answer so often, and whether all paths were tried."""
    got = seen("planted")
    ones = torch.ones(len(got.contexts), dtype=F64)
    got = replace(got, right=ones, answer_lift=ones)
    tried: list[float] = []

    def rest(*_: Any) -> Any:
        tried.append(1.0)
        return None if left is None else ({(1, 0): 1.0}, ONE, left)

    monkeypatch.setattr(smallest, "sum_edges", lambda *_: None)
    monkeypatch.setattr(smallest, "answers", shares(told))
    monkeypatch.setattr(smallest, "_candidates", lambda *_: iter([({}, ONE)] * len(told)))
    monkeypatch.setattr(smallest, "_irreducible", rest)
    found = smallest.smallest_that_answers(probe_of(soft_induction()), got)
    return (found[2] if found else 0.0), bool(tried)


def test_the_first_candidate_that_answers_nearly_as_often_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert smallest_of(monkeypatch, [0.5, ENOUGH, 1.0]) == (ENOUGH, False)
    assert smallest_of(monkeypatch, [0.5, BELOW(ENOUGH), 1.0]) == (1.0, False)
    assert smallest_of(monkeypatch, [0.9, 0.85, 0.9]) == (0.9, False)


def test_all_paths_are_tried_where_candidates_fall_short(monkeypatch: pytest.MonkeyPatch) -> None:
    short = smallest.SHORT
    assert smallest_of(monkeypatch, [short]) == (short, False)
    assert smallest_of(monkeypatch, [BELOW(short)], left=0.875) == (0.875, True)
    assert smallest_of(monkeypatch, [0.125]) == (0.125, True)


def paths_of(monkeypatch: pytest.MonkeyPatch, told: Callable[[set[Edge]], float]) -> Any:
    """`_irreducible`, where a set of edges answers as often as told."""
    monkeypatch.setattr(smallest, "sum_edges", lambda w, t, edges, full: edges)
    monkeypatch.setattr(
        smallest, "answers", lambda w, edges, c: torch.tensor([told(edges)], dtype=F64)
    )
    return smallest._irreducible(probe_of(soft_induction()), seen("planted"), 1.0)


def test_heads_and_edges_go_where_answers_stay_at_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = {Edge((0, 0), (1, 0), "K"), Edge((1, 0), OUTPUT, "out")}
    for rest, gone in ((ENOUGH, True), (BELOW(ENOUGH), False)):
        found = paths_of(
            monkeypatch,
            lambda edges, rest=rest: (
                0.0 if not needed <= edges else 1.0 if len(edges) == 28 else rest
            ),
        )
        between = {e for e in found[1] if e.source != EMBED}
        assert (between == needed) == gone
        assert ({e.target for e in found[1]} == {(0, 0), (1, 0), OUTPUT}) == gone
        assert found[2] == (rest if gone else 1.0)


def test_the_direct_path_counts_where_heads_alone_fall_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    direct, end = Edge(EMBED, OUTPUT, "out"), Edge((1, 0), OUTPUT, "out")
    for alone, taken in ((ENOUGH, False), (BELOW(ENOUGH), True)):
        found = paths_of(
            monkeypatch, lambda e, a=alone: (1.0 if direct in e else a) if end in e else 0.0
        )
        assert found is not None
        assert (direct in found[1]) == taken
    assert paths_of(monkeypatch, lambda e: BELOW(ENOUGH)) is None


def test_copiers_look_at_the_answer_on_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = {Edge((0, 0), (1, 0), "K"), Edge((1, 0), OUTPUT, "out")}
    got = seen("planted")
    for attends, copiers in ((smallest.LOOKS / 2, {(1, 0)}), (0.9, {(0, 0), (1, 0)})):
        drawn = {head: torch.full((40,), 0.5, dtype=F64) for head in got.lift}
        drawn[0, 0] = torch.full((40,), attends, dtype=F64)
        monkeypatch.setattr(smallest, "sum_edges", lambda w, t, edges, full: edges)
        monkeypatch.setattr(
            smallest, "answers", lambda w, e, c: torch.tensor([float(needed <= e)], dtype=F64)
        )
        found = smallest._irreducible(probe_of(soft_induction()), replace(got, lift=drawn), 1.0)
        assert found is not None
        assert set(found[0]) == copiers


@pytest.mark.parametrize(("most", "found"), [(4, True), (3, False)])
def test_so_many_heads_are_tried_one_by_one(
    monkeypatch: pytest.MonkeyPatch, most: int, found: bool
) -> None:
    monkeypatch.setattr(smallest, "MOST_HEADS", most)
    end = Edge((1, 0), OUTPUT, "out")
    assert (paths_of(monkeypatch, lambda e: float(end in e)) is not None) == found


@pytest.mark.parametrize(("more", "tried"), [(0, True), (-1, False)])
def test_so_many_edges_are_tried_one_by_one(
    monkeypatch: pytest.MonkeyPatch, more: int, tried: bool
) -> None:
    # Three heads stay: two ends and a feeder, 3 edges to each end and 3 to the output.
    kept = [(0, 0), (1, 0), (1, 1)]
    outs = {Edge(head, OUTPUT, "out") for head in kept}
    monkeypatch.setattr(smallest, "MOST_EDGES", 9 + more)

    found = paths_of(monkeypatch, lambda edges: float(outs <= edges))
    assert found is not None
    assert len([e for e in found[1] if e.source != EMBED]) == (3 if tried else 9)


# -- association, graphs, deep models --------------------------------------------------------------


def test_writers_of_more_shares_are_tried_until_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = probe_of(soft_induction())
    relation = Relation(torch.tensor([1, 0, 3, 2, -1, -1, -1, -1, -1]), False)
    tried: list[float] = []

    def edges(*args: Any) -> set[Edge]:
        tried.append(args[-1])
        return ONE if args[-1] != attribution.SHARES[1] else ONE | {Edge(EMBED, OUTPUT, "out")}

    monkeypatch.setattr(association, "_edges", edges)
    # Asked: the whole model twice, then the edges of each share.
    for told, steps, strength in (
        ([1.0, 1.0, ENOUGH, 1.0, 1.0], 1, ENOUGH),
        ([1.0, 1.0, BELOW(ENOUGH), 1.0, 1.0], 2, 1.0),
        ([1.0, 1.0, 0.5, 0.5, 0.25], 3, 0.5),
    ):
        tried.clear()
        monkeypatch.setattr(association, "answers", shares(told))
        monkeypatch.setattr(
            association, "_token_coverage", lambda *_: coverage_of(INDUCTION.cells(9), 9, INDUCTION)
        )
        circuit, won = association.find_in_weights(probe, relation)
        assert circuit is not None
        assert (len(tried), circuit.strength, won) == (steps, strength, 1.0)
        assert (Edge(EMBED, OUTPUT, "out") in circuit.edges) == (steps == 2)


def graph_strength(monkeypatch: pytest.MonkeyPatch, told: list[float]) -> float | None:
    """Strength where the whole model, each set of ports and the control answer so often."""
    edges = tuple(CausalEdge(0, child, 0.9, 4.0, 0.001, 0) for child in (2, 3))
    graph = CausalGraph(7, edges, edges, (0.1,), "weights")
    left = iter(told)
    monkeypatch.setattr(graph_induction, "_graph_of", lambda _: graph)
    monkeypatch.setattr(graph_induction, "_copiers", lambda *_: {(1, 0): 2.0})
    monkeypatch.setattr(graph_induction, "_share_right", lambda *_: next(left))
    monkeypatch.setattr(graph_induction, "_stands_out", lambda *_: 3.0)
    found = graph_induction.graph_induction(probe_of(soft_induction()))
    return None if found is None else found.circuit.strength


def test_a_graph_circuit_works_above_one_half(monkeypatch: pytest.MonkeyPatch) -> None:
    assert graph_strength(monkeypatch, [1.0, 0.95, 0.125]) == 0.95
    assert graph_strength(monkeypatch, [1.0, 0.9, 0.94, 0.94, 0.0]) == 0.94
    assert graph_strength(monkeypatch, [0.5, 0.5, 0.0]) is None
    assert graph_strength(monkeypatch, [ABOVE(0.5, 1), 0.75, 0.0]) == ABOVE(0.5, 1)
    assert graph_strength(monkeypatch, [1.0, 1.0, 0.75]) is None
    assert graph_strength(monkeypatch, [1.0, 1.0, 0.625]) == 0.75


def test_heads_of_layer_0_are_feeders_and_no_copiers() -> None:
    """All heads gain the same attention to right children; those of layer 0 copy nothing."""
    got = seen("planted")
    n = len(got.contexts)
    right = torch.zeros(n, 7, dtype=torch.bool)
    right[:, 2] = True
    attention = torch.zeros_like(got.trace.attention[0])
    attention[:, :, -1, 2] = 1.0
    full = replace(got.trace, attention=(attention, attention))
    flat = replace(full, attention=(attention * 0.9, attention * (1 - graph_induction.GAINS)))
    none = replace(full, attention=(attention * 0.9, attention))
    probe = probe_of(soft_induction())
    found = graph_induction._copiers(probe, full, none, got.contexts, right)
    assert found == {}
    less = replace(full, attention=(0 * attention, 0 * attention))
    found = graph_induction._copiers(probe, full, less, got.contexts, right)
    assert set(found) == {(1, 0)}
    assert graph_induction._copiers(probe, full, flat, got.contexts, right) == {}


def test_activations_before_a_change_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two layers, a direction of the second costs one layer's pass, one of the output none."""
    objective = objective_of("plain")
    passes: list[int] = []
    after = objective._after

    def counted(layer: int, *rest: Any) -> Tensor:
        passes.append(layer)
        return after(layer, *rest)

    monkeypatch.setattr(objective, "_after", counted)
    alive = torch.ones(objective.size, dtype=torch.bool)
    objective.evaluate(alive)
    assert passes == [0, 1]
    layers = [name.head[0] if name.head else 2 for name in objective.names]
    for layer in (2, 1, 0):
        passes.clear()
        objective.evaluate(alive)
        passes.clear()
        off = alive.clone()
        off[layers.index(layer)] = False
        objective.evaluate(off)
        assert passes == list(range(layer, 2))


@pytest.mark.parametrize(
    ("same", "behind", "kind"),
    [
        (deep.LOOKS, 0.0, None),
        (ABOVE(deep.LOOKS, 1), 0.0, "duplicate_token"),
        (0.5, 0.5, "prefix_match"),
        (0.0, deep.LOOKS, None),
        (0.0, ABOVE(deep.LOOKS, 1), "prefix_match"),
    ],
)
def test_a_head_of_a_deep_model_looks_more_than_the_bar(
    monkeypatch: pytest.MonkeyPatch, same: float, behind: float, kind: str | None
) -> None:
    weights = random_weights(layers=1, heads=1)
    told = SimpleNamespace(weights=weights, lift=lambda head, offset: (same, behind)[offset])
    monkeypatch.setattr(deep, "copies", lambda *_: (0.5, 0.0))
    found = deep._matching(told)  # type: ignore[arg-type]
    assert [c.kind for c in found] == ([kind] if kind else [])


def test_what_is_copied_clearly_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = random_weights(layers=1, heads=1)
    told = SimpleNamespace(weights=weights, lift=lambda head, offset: (0.0, 0.5)[offset])
    bar = attending.SIGNIFICANT
    monkeypatch.setattr(deep, "_induction", lambda d, copiers: made("induction", *copiers))
    for z, kind in (
        (bar, "induction"), (BELOW(bar), "prefix_match"),
        (-bar, "suppression"), (-BELOW(bar), "prefix_match"),
    ):  # fmt: skip
        monkeypatch.setattr(deep, "copies", lambda *_, z=z: (0.5, z))
        assert [c.kind for c in deep._matching(told)] == [kind]  # type: ignore[arg-type]


def test_a_relation_that_names_one_token_is_looked_at() -> None:
    got = deep_of("planted")
    probe = replace(probe_of(got.weights), vocabulary=got.extended.tokens)
    partner = torch.full((9,), -1)
    nobody = deep.deep_circuits(probe, got, Relation(partner, False))
    partner[0] = 3
    one = deep.deep_circuits(probe, got, Relation(partner, False))
    assert len(one) == len(nobody) + 1


# -- places, shares, sums --------------------------------------------------------------------------


def test_places_at_the_share_of_the_best_belong_to_it() -> None:
    """Many questions at each place, so that what is believed of a place is its share."""
    n = 4000
    place = torch.arange(2).repeat_interleave(n)
    for bar, found in ((BEST, "best_places"), (NEAR_BEST, "near_best")):
        means = {}
        for share in (bar - 0.02, bar + 0.02):
            low = torch.full((n,), share, dtype=F64)
            score = torch.cat([torch.ones(n, dtype=F64), low])
            if found == "best_places":
                kept = torch.ones(2, dtype=torch.bool)
                means[share] = len(best_places(score, place, kept, 2))
            else:
                keep = torch.ones(2 * n, dtype=torch.bool)
                means[share] = int(near_best(score, place, keep, 2).sum())
        assert list(means.values()) == [1, 2]


@pytest.mark.parametrize("name", ["NEAR_BEST", "BEST"])
def test_a_place_at_the_bar_belongs_to_the_best(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Means of four scores at two places, pulled towards the overall one, by hand."""
    score = torch.tensor([1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5], dtype=F64)
    place, keep = torch.arange(2).repeat_interleave(4), torch.ones(8, dtype=torch.bool)
    best, other = (4 + 2 * 0.75) / 6, (2 + 2 * 0.75) / 6
    if name == "NEAR_BEST":  # what is believed: the mean and its standard error
        other = 0.5 + float(torch.tensor(other * (1 - other), dtype=F64).sqrt() / 2)
    near = other / best
    bar = next(b for b in (near, ABOVE(near, 1), BELOW(near)) if b * best == other)
    for value, found in ((bar, 2), (ABOVE(bar, 1), 1)):
        monkeypatch.setattr(probe_module, name, value)
        if name == "BEST":
            kept = torch.ones(2, dtype=torch.bool)
            assert len(best_places(score, place, kept, 2)) == found
        else:
            assert int(near_best(score, place, keep, 2).sum()) == found


def test_a_cosine_that_strays_by_rounding_is_one() -> None:
    strayed = 0
    for size in range(3, 40):
        for offset in range(1, size):
            S = torch.zeros(size, size, dtype=F64)
            index = torch.arange(offset, size)
            S[index, index - offset] = 0.7
            assert abs(read_shift(S, offset).cosine) <= 1.0
            strayed += read_shift(S, offset).cosine == 1.0
    assert strayed > 100
    for size in range(2, 60):
        for scale in (0.1, 0.7, 3.0, -0.3):
            eye = torch.eye(size, dtype=F64)
            assert abs(read_selection(scale * eye, eye).cosine) <= 1.0


@pytest.mark.parametrize(("budget", "kept"), [(0.75, (2,)), (BELOW(0.75), (0, 2))])
def test_a_budget_may_be_spent_to_the_last(budget: float, kept: tuple[int, ...]) -> None:
    objective = Additive([0.5, 0.25, 4.0])
    for found in (
        eliminate.eliminate(objective, budget=budget),
        eliminate.eliminate_literally(objective, budget=budget),
    ):
        assert found.kept == (kept if budget == 0.75 else (0, 2))
        assert max(found.losses) <= budget
        assert found.blocked == (4.75 if budget == 0.75 else 0.75)
    assert best_subset(objective, budget=budget).kept == kept
    assert eliminate.eliminate(Additive([0.5]), budget=0.0).kept == (0,)


@pytest.mark.parametrize(
    ("kind", "strength", "asked"),
    [
        ("induction", in_context.CLEARLY, True),
        ("induction", ABOVE(in_context.CLEARLY, 1), False),
        ("skip", 1.0, True),
    ],
    ids=str,
)
def test_separators_are_asked_about_where_nothing_answers_clearly(
    monkeypatch: pytest.MonkeyPatch, kind: str, strength: float, asked: bool
) -> None:
    form = Lookup(2, lag=1, template=Template((7, 8), 3, 1))
    monkeypatch.setattr(in_context, "separated_lookups", lambda *_: [form])
    circuit = made(kind, (1, 0), strength=strength)
    tried = {1: in_context._Tried(seen("planted"), induction.Answering(circuit, 1, 1), circuit)}
    probe = probe_of(soft_induction())
    assert list(in_context._with_separators(probe, NOBODY, tried)) == [form] * asked
    assert list(in_context._with_separators(probe, NOBODY, {})) == [form]


# -- separators ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "found"), [(WORKS, 0), (ABOVE(WORKS, 1), 1)])
def test_a_lookup_with_separators_is_answered_more_often_than_not(
    monkeypatch: pytest.MonkeyPatch, share: float, found: int
) -> None:
    lookup = Lookup(2, lag=1, template=Template((7, 8), 3, 1))
    monkeypatch.setattr(separators, "_forms", lambda *_: iter([lookup]))
    monkeypatch.setattr(separators, "_share", lambda *_: share)
    got = separators.separated_lookups(probe_of(soft_induction()), torch.tensor([7, 8]))
    assert len(got) == found


def test_separators_are_refined_where_answers_come_most_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = Template((7, 8), 3, 1)
    lookups = [Lookup(2, lag=1, template=form), Lookup(template=form), Lookup(-2, 1, lag=1)]
    lookups[2] = replace(lookups[2], template=form)
    told, asked = iter([0.6, 0.9, 0.7]), []
    draw = separators._contexts

    def contexts(probe: Probe, lookup: Lookup, n: int) -> Any:
        asked.append((lookup, n))
        return draw(probe, lookup, n)

    monkeypatch.setattr(separators, "_forms", lambda *_: iter(lookups))
    monkeypatch.setattr(separators, "_share", lambda *_: next(told))
    monkeypatch.setattr(separators, "_contexts", contexts)
    found = separators.separated_lookups(probe_of(soft_induction()), torch.tensor([7, 8]))
    assert asked[-1] == (lookups[1], separators.REFINED)
    assert [replace(lookup, template=form) for lookup in found] == lookups
    monkeypatch.setattr(separators, "_forms", lambda *_: iter(()))
    nothing = separators.separated_lookups(probe_of(soft_induction()), torch.tensor([7, 8]))
    assert nothing == []


@pytest.mark.parametrize(("most", "share", "found"), [(2, 1.0, 2), (1, 1.0, 0), (9, 2 / 9, 2)])
def test_so_many_tokens_may_be_separators(
    monkeypatch: pytest.MonkeyPatch, most: int, share: float, found: int
) -> None:
    weights = soft_induction()
    never = replace(weights, b_U=weights.b_U.clone())
    never.b_U[7:] -= 50.0
    monkeypatch.setattr(separators, "MOST", most)
    monkeypatch.setattr(separators, "MOST_SHARE", share)
    assert len(separators.unsaid_tokens(probe_of(never), NOBODY)) == found


def test_so_many_tokens_are_asked_of(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = soft_induction()
    never = replace(weights, b_U=weights.b_U.clone())
    never.b_U[7:] -= 50.0
    for most, found in ((9, 2), (8, 0)):
        monkeypatch.setattr(separators, "MOST_ASKED", most)
        assert len(separators.unsaid_tokens(probe_of(never), NOBODY)) == found
