"""The closed-form coordinate model is the idealised model at four coordinates."""

from __future__ import annotations

import math

import pytest
import torch

from imir_detect.frame.relations import selections
from imir_detect.models.idealised import from_coefficients, idealised
from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory.reduced import NAMES, Reduced, coefficients, gradient, norms

TASK = AssociativeRecall(n_blocks=3, n_common=12, n_rare=6, rare_frequency=0.5, variability=0.5)


def frame_and_model(heads: int):
    model = idealised(18, 7, 2, heads)
    chosen = selections(TASK.relation, 7, shifts=1, per_class=False)
    return model.frame(chosen), model


@pytest.mark.parametrize("heads", [1, 2])
def test_it_is_the_idealised_model(heads) -> None:
    frame, model = frame_and_model(heads)
    alpha = torch.tensor([1.3, -0.4])[:heads]
    beta = torch.tensor([2.0, 0.7])[:heads]
    point = Reduced.of(alpha, beta, 1.7, 0.6)
    zero = frame.project(model.attention, model.output)
    full = from_coefficients(model, frame, coefficients(point, frame, zero))
    batch = TASK.sample(50, generator=torch.Generator().manual_seed(0))
    wanted = full.logits(batch.tokens)
    assert torch.allclose(point.logits(batch.tokens, TASK.relation), wanted, atol=1e-10)


def test_flat_and_back() -> None:
    point = Reduced.of([1.0, 2.0], [3.0, 4.0], 5.0, 6.0)
    assert point.flat().tolist() == [1, 2, 3, 4, 5, 6]
    assert torch.equal(Reduced.from_flat(point.flat()).flat(), point.flat())


def test_at_the_origin_only_gamma_and_delta_have_a_gradient() -> None:
    """gamma: -(1 / T - 1 / V) with the answer once among T tokens; alpha and beta: zero."""
    task = AssociativeRecall(n_blocks=3, n_common=0, n_rare=12, rare_frequency=1.0)
    batch = task.sample(64, generator=torch.Generator().manual_seed(0))
    found = gradient(Reduced.of(), batch, task.relation)
    assert found[0] == found[1] == found[3] == 0
    assert float(found[2]) == pytest.approx(-(1 / 7 - 1 / 12))


def test_attention_of_a_strong_circuit_by_hand() -> None:
    """alpha infinite: the position after the query's earlier copy scores beta, all others 0."""
    tokens = torch.tensor([[5, 6, 7, 8, 5]])
    attention = Reduced.of(50.0, 2.0).attention(tokens)[0]
    # Position 0 attends to itself alone, so it matches the query as well.
    total = 2 * math.exp(2) + 3
    wanted = [math.exp(2) / total, math.exp(2) / total, *[1 / total] * 3]
    assert torch.allclose(attention, torch.tensor(wanted).double())


def test_norms_are_those_of_the_selections() -> None:
    frame, _ = frame_and_model(1)
    found = norms(frame)
    wanted = (math.sqrt(6), math.sqrt(18), math.sqrt(18), math.sqrt(12))
    assert [found[k] for k in NAMES] == pytest.approx(wanted)
