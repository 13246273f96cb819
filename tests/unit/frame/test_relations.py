"""Closed-form selections span exactly what commutes with the task's relabellings."""

from __future__ import annotations

import pytest
import torch

from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.commutant import commutant, permutation_matrix, span_distance
from imir_detect.frame.names import Selection
from imir_detect.frame.relations import centre, selections, token_classes


def swap(size: int, *pairs: tuple[int, int]) -> torch.Tensor:
    images = torch.arange(size)
    for a, b in pairs:
        images[a], images[b] = b, a
    return images


UNDIRECTED = torch.tensor([1, 0, 3, 2, -1, -1, -1])
# Relabellings that keep R: turn a pair round, swap two pairs, permute the rare tokens.
UNDIRECTED_GROUP = [
    swap(7, (0, 1)),
    swap(7, (0, 2), (1, 3)),
    swap(7, (4, 5)),
    swap(7, (5, 6)),
]
DIRECTED = torch.tensor([3, 4, 5, -1, -1, -1, -1, -1])
DIRECTED_GROUP = [
    swap(8, (0, 1), (3, 4)),
    swap(8, (1, 2), (4, 5)),
    swap(8, (6, 7)),
]


def token_blocks(relation: torch.Tensor, **knobs: bool) -> torch.Tensor:
    n = len(relation)
    found = selections(relation, 1, ones=True, **knobs)
    return torch.stack([m[:n, :n] for s, m in found.items() if s.space == "token"])


@pytest.mark.parametrize(
    ("relation", "group"), [(UNDIRECTED, UNDIRECTED_GROUP), (DIRECTED, DIRECTED_GROUP)]
)
def test_token_selections_are_the_commutant_of_the_token_group(relation, group) -> None:
    assert span_distance(token_blocks(relation), commutant(group)) < 1e-12


def test_a_directed_relation_needs_its_transpose() -> None:
    assert span_distance(token_blocks(DIRECTED, back=False), commutant(DIRECTED_GROUP)) == 1.0


def test_one_identity_for_two_classes_spans_less() -> None:
    assert (
        span_distance(token_blocks(UNDIRECTED, per_class=False), commutant(UNDIRECTED_GROUP)) > 0.5
    )


def test_circulants_are_the_commutant_of_the_rotations() -> None:
    found = selections(torch.tensor([-1]), 5)
    circulants = torch.stack([m[1:, 1:] for s, m in found.items() if s.space == "position"])
    rotation = torch.tensor([1, 2, 3, 4, 0])
    assert len(circulants) == 5
    assert span_distance(circulants, commutant([rotation])) < 1e-12


def test_the_truncated_shift_is_one_token_back() -> None:
    found = selections(torch.tensor([-1]), 3, shifts=1)
    matrix = found[Selection("position", "shift", 1)][1:, 1:]
    assert matrix.tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]


def test_classes_of_a_directed_relation() -> None:
    classes = token_classes(torch.tensor([2, -1, -1]))
    assert {k: v.nonzero()[:, 0].tolist() for k, v in classes.items()} == {
        "key": [0],
        "value": [2],
        "rare": [1],
    }


def test_centring_removes_class_means_and_nothing_else() -> None:
    projector = centre(UNDIRECTED, 2)
    common = torch.tensor([1.0, 1, 1, 1, 0, 0, 0, 0, 0]).double()
    assert torch.allclose(projector @ common, torch.zeros(9).double())
    assert torch.allclose(projector @ projector, projector)
    assert int(torch.linalg.matrix_rank(projector)) == 9 - 3  # two classes and the positions


def test_the_distance_of_two_lines_is_the_sine_of_their_angle() -> None:
    first = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]], dtype=torch.float64)
    aside = torch.tensor([[[0.0, 0.6], [0.0, 0.8]]], dtype=torch.float64)
    for sine in (0.0, 0.28, 0.96):
        second = (1 - sine**2) ** 0.5 * first + sine * aside
        assert span_distance(first, 3 * second) == pytest.approx(sine, abs=1e-12)


def test_a_chain_of_keys_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="keys to tokens that are no keys"):
        token_classes(torch.tensor([1, 2, -1]))


def test_a_generator_that_is_no_permutation_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="must be a permutation"):
        permutation_matrix(torch.tensor([0, 0]))


def test_a_group_too_large_for_a_null_space_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="too many points"):
        commutant([torch.arange(33)])


@pytest.mark.parametrize(
    "fields",
    [("token", "ones", 0, ("common",)), ("position", "identity", 0, ("common",))],
)
def test_classes_that_a_selection_does_not_take_are_refused(fields) -> None:
    with pytest.raises(InvalidArgumentError, match="does not take these classes"):
        Selection(*fields)
