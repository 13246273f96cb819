"""The truth of models that nobody planted: between certified bounds where search cannot end."""

import pytest
import torch

from imir_detect.benchmark.cases import TRUTH_SEED, labels_of, planted_case
from imir_detect.benchmark.graph import PatchedModel
from imir_detect.benchmark.truth import (
    Bracket,
    bracketed_circuits,
    faithful,
    minimal_circuits,
)
from imir_detect.coordinates.pathsum import Edge
from imir_detect.models.planted import PlantedSpec


@pytest.fixture(scope="module", params=["zero", "resample"])
def model(request: pytest.FixtureRequest) -> PatchedModel:
    spec = PlantedSpec("induction", heads=1, vocab=9, context=7, noise=0.05, seed=3)
    return planted_case("small", spec, request.param).patched(24, seed=TRUTH_SEED)


@pytest.fixture(scope="module")
def bracket(model: PatchedModel) -> Bracket:
    return bracketed_circuits(model, tries=4)


def mask(model: PatchedModel, edges: frozenset[Edge]) -> torch.Tensor:
    return torch.tensor([float(edge in edges) for edge in model.edges])


def test_every_bound_is_what_a_run_shows(model: PatchedModel, bracket: Bracket) -> None:
    whole = frozenset(model.edges)
    for circuit in bracket.circuits:
        assert faithful(model, mask(model, circuit))
        assert not any(faithful(model, mask(model, circuit - {edge})) for edge in circuit)
    for edge in whole:
        assert (edge in bracket.alone) == (not faithful(model, mask(model, whole - {edge})))


def test_the_bracket_contradicts_no_exhaustive_label(model: PatchedModel, bracket: Bracket) -> None:
    exact = labels_of(minimal_circuits(model), model.edges, "edge", source="exhaustive")
    found = labels_of(bracket, model.edges, "edge", source="bracketed")
    assert exact.positive
    assert found.positive <= exact.positive
    assert found.negative <= exact.negative | (frozenset(model.edges) - exact.positive)


def test_what_stands_in_every_circuit_but_can_go_by_itself_is_not_right() -> None:
    a, b = Edge("embed", "output", "out"), Edge((0, 0), "output", "out")
    found = Bracket((frozenset({a, b}),), alone=frozenset({a}))
    assert (found.necessary, found.edges) == (frozenset({a}), frozenset({a, b}))
