"""Directions in weight space: what each does, projection and rebuild as each other's inverse."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from imir_detect.errors import FrameMismatchError
from imir_detect.frame.basis import Coefficients, Frame, paths
from imir_detect.frame.names import DIRECT, Path
from imir_detect.frame.relations import selections
from imir_detect.models.idealised import idealised

RELATION = torch.tensor([1, 0, -1, -1, -1])


def frame_of(values: str, *, layers: int = 2, heads: int = 1, **knobs) -> Frame:
    model = idealised(5, 3, layers, heads, values=values, relation=RELATION, **knobs)
    return model.frame(selections(RELATION, 3, shifts=1))


def draw(frame: Frame, seed: int) -> Coefficients:
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    counts = [len(frame.paths(layer)) for layer in range(frame.n_layers + 1)]
    attention = [normal(frame.n_heads, len(frame.selections), n, n) for n in counts[:-1]]
    return Coefficients(tuple(attention), normal(len(frame.output_selections), counts[-1]))


def test_paths_are_ordered_by_their_digits() -> None:
    found = paths(2, 2)
    assert found[0] == DIRECT
    assert found[1:3] == (Path(((0, 0),)), Path(((0, 1),)))
    assert found[1 * 1 + 3 * 2] == Path(((0, 0), (1, 1)))
    assert len(found) == 9


@pytest.mark.parametrize("values", ["separated", "random"])
@pytest.mark.parametrize(("layers", "heads"), [(2, 1), (1, 2), (2, 2)])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**16))
def test_project_then_rebuild_is_the_identity_on_the_span(values, layers, heads, seed) -> None:
    frame = frame_of(values, layers=layers, heads=heads)
    weights, output = frame.rebuild(draw(frame, seed))
    again, again_output = frame.rebuild(frame.project(weights, output))
    assert torch.allclose(again_output, output, atol=1e-10)
    for a, b in zip(again, weights, strict=True):
        assert torch.allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("values", ["separated", "random"])
def test_coefficients_come_back_where_the_basis_has_full_rank(values) -> None:
    frame = frame_of(values)
    assert all(frame.rank(layer)[0] == frame.rank(layer)[1] for layer in range(3))
    c = draw(frame, 3)
    assert torch.allclose(frame.project(*frame.rebuild(c)).flat(), c.flat(), atol=1e-9)


def test_what_lies_outside_is_orthogonal_to_every_direction() -> None:
    frame = frame_of("random", width=10)
    g = torch.Generator().manual_seed(0)
    weights = tuple(torch.randn(1, 10, 10, generator=g, dtype=torch.float64) for _ in range(2))
    output = torch.randn(10, 10, generator=g, dtype=torch.float64)
    rest, rest_output = frame.outside(weights, output)
    dots = torch.einsum("spqab,ab->spq", frame.matrices(1), rest[1][0])
    assert float(dots.abs().max()) < 1e-9
    dots = torch.einsum("spab,ab->sp", frame.output_matrices(), rest_output)
    assert float(dots.abs().max()) < 1e-9


@pytest.mark.parametrize("values", ["separated", "random"])
def test_a_direction_selects_its_pairs_along_its_paths(values) -> None:
    """read_q^T S read_k gives exactly S between rows carried along q and along k."""
    frame = frame_of(values)
    read = frame.reads(1)
    matrices = frame.matrices(1)
    if frame.separated:
        carried = read  # orthonormal rows: the block itself
    else:
        carried = torch.stack([frame.embedding, frame.embedding @ frame.values[0, 0]])
    for s, selection in enumerate(frame.selections.values()):
        for q in range(2):
            for k in range(2):
                scores = carried[q] @ matrices[s, q, k] @ carried[k].T
                assert torch.allclose(scores, selection, atol=1e-10)


def test_centred_embeddings_lose_rank_and_say_so() -> None:
    model = idealised(5, 3, 2, relation=RELATION, centring="class")
    frame = model.frame(selections(RELATION, 3))
    directions, rank, condition = frame.rank(0)
    # Two common tokens centred leave one line, on which C = -I; positions' circulants sum to J = 0.
    assert (directions, rank) == (6, 4)
    assert 1.0 <= condition < 10


def test_single_precision_gives_the_smallest_coefficients_too() -> None:
    # Centred positions: identity and all cycles sum to nothing, up to the embedding's precision.
    found = []
    for dtype in (torch.float32, torch.float64):
        model = idealised(6, 8, 2, centring="class", dtype=dtype)
        frame = model.frame(selections(torch.full((6,), -1), 8))
        numbers = torch.zeros(len(list(frame.directions())), dtype=dtype)
        numbers[2] = 1.0  # one cycle in layer 0
        zero = frame.project(model.attention, model.output)
        found.append(frame.project(*frame.rebuild(zero.like(numbers))).flat().double())
    assert torch.allclose(found[0], found[1], atol=1e-5)
    assert found[1].norm() < 0.95  # the common part of the cycles is gone


def test_directions_are_named_in_the_order_of_the_numbers() -> None:
    frame = frame_of("separated")
    names = list(frame.directions())
    assert len(names) == len(draw(frame, 0).flat()) == 5 * (1 + 4) + 3 * 4
    assert str(names[0]) == "L0H0[identity of common] q:direct k:direct"
    assert str(names[5 + 1]) == "L1H0[identity of common] q:direct k:L0H0"
    assert str(names[-1]) == "out[association] L0H0>L1H0"


def test_weights_of_another_frame_are_refused() -> None:
    frame = frame_of("separated")
    with pytest.raises(FrameMismatchError, match="do not belong to this frame"):
        frame.project((torch.zeros(1, 3, 3), torch.zeros(1, 3, 3)), torch.zeros(3, 3))


def test_selections_of_another_vocabulary_are_refused() -> None:
    model = idealised(5, 3, 1)
    with pytest.raises(FrameMismatchError, match="does not fit the embeddings"):
        model.frame(selections(RELATION, 4))
