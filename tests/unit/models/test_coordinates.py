"""The coordinate form is the idealised model; its caches and batches change no number."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.relations import selections
from imir_detect.models import coordinates as co
from imir_detect.models.hop_data import HopSequences
from imir_detect.models.idealised import from_coefficients, idealised
from imir_detect.models.objective import CoordinateObjective

RELATION = torch.tensor([1, 0, 3, 2, -1, -1, -1, -1])
HOP = HopSequences(n_items=4, vocab=8, spread=False)


def case(layers=3, heads=1, centring="none", seed=0, positions=9, **chosen):
    model = idealised(8, positions, layers, heads, relation=RELATION, centring=centring)
    frame = model.frame(selections(RELATION, positions, **chosen))
    g = torch.Generator().manual_seed(seed)
    zero = co.zeros(frame)
    c = zero.like(0.7 * torch.randn(len(zero.flat()), generator=g, dtype=torch.float64))
    tokens, answers, _ = HOP.sample(12, g)
    return model, frame, c, tokens, answers


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("centring", ["none", "class"])
def test_it_computes_the_idealised_models_logits(heads, centring) -> None:
    layers = 3 if heads == 1 else 2
    model, frame, c, tokens, answers = case(layers, heads, centring, ones=True)
    wanted = from_coefficients(model, frame, c).logits(tokens)
    assert torch.allclose(co.logits(c, co.kernels(frame, tokens, answers)), wanted, atol=1e-9)


def test_positions_are_those_given() -> None:
    model, frame, c, tokens, answers = case(2, positions=12)
    places = torch.rand(12, 12, generator=torch.Generator().manual_seed(1)).argsort(1)[:, :9]
    wanted = from_coefficients(model, frame, c).logits(tokens, places)
    found = co.logits(c, co.kernels(frame, tokens, answers, places))
    assert torch.allclose(found, wanted, atol=1e-9)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("share", [1.0, 0.3, 0.02])
def test_batched_candidates_equal_one_pass_each(heads, share) -> None:
    _, frame, c, tokens, answers = case(3 if heads == 1 else 2, heads, shifts=1)
    data = co.kernels(frame, tokens, answers)
    fast, slow = CoordinateObjective(c, data), CoordinateObjective(c, data, reuse=False)
    g = torch.Generator().manual_seed(2)
    alive = torch.rand(fast.size, generator=g) < share
    found = fast.without(alive, torch.arange(fast.size))
    for one in torch.randperm(fast.size, generator=g)[:40].tolist():
        rest = alive.clone()
        rest[one] = False
        assert float(found[one]) == pytest.approx(slow.evaluate(rest)[0], abs=1e-10)
    assert fast.evaluate(alive) == pytest.approx(slow.evaluate(alive), abs=1e-10)


def test_reused_activations_change_nothing_along_a_chain_of_removals() -> None:
    _, frame, c, tokens, answers = case(3, shifts=1)
    data = co.kernels(frame, tokens, answers)
    fast, slow = CoordinateObjective(c, data), CoordinateObjective(c, data, reuse=False)
    alive = torch.ones(fast.size, dtype=torch.bool)
    for one in torch.randperm(fast.size, generator=torch.Generator().manual_seed(3)).tolist():
        alive[one] = False
        assert fast.evaluate(alive)[0] == pytest.approx(slow.evaluate(alive)[0], abs=1e-10)
    alive[:] = True  # and back: nothing of the empty pass may be left over
    assert fast.evaluate(alive)[0] == pytest.approx(slow.evaluate(alive)[0], abs=1e-10)


@pytest.mark.parametrize("share", [1.0, 0.4])
@pytest.mark.parametrize("heads", [1, 2])
def test_margins_give_the_losses_and_their_gradients(share, heads) -> None:
    _, frame, c, tokens, answers = case(3 if heads == 1 else 2, heads, shifts=1)
    data = co.kernels(frame, tokens, answers)
    objective = CoordinateObjective(c, data)
    alive = torch.rand(objective.size, generator=torch.Generator().manual_seed(4)) < share
    margin, change = objective.margins(alive)
    losses = torch.nn.functional.softplus(-margin)
    assert float(losses.mean()) == pytest.approx(objective.evaluate(alive)[0])
    flat = (objective.flat * alive).requires_grad_()
    (gradient,) = torch.autograd.grad(co.loss(c.like(flat), data), flat)
    by_margin = (-torch.sigmoid(-margin)[:, None] * change).mean(0)
    assert torch.allclose(by_margin, -(flat * gradient).detach(), atol=1e-10)


def test_zero_coefficients_still_learn() -> None:
    _, frame, c, tokens, answers = case(2, shifts=1)
    flat = co.zeros(frame).flat().requires_grad_()
    loss = co.loss(c.like(flat), co.kernels(frame, tokens, answers))
    (gradient,) = torch.autograd.grad(loss, flat)
    assert int((gradient != 0).sum()) > 0


def test_overlapping_paths_are_refused() -> None:
    model = idealised(8, 9, 2, values="random")
    frame = model.frame(selections(RELATION, 9))
    with pytest.raises(InvalidArgumentError, match="only where paths are separated"):
        co.kernels(frame, *HOP.sample(2, torch.Generator()))


def test_hop_sequences_follow_their_cycle() -> None:
    tokens, answers, _ = HOP.sample(200, torch.Generator().manual_seed(0))
    for row, answer in zip(tokens.tolist(), answers.tolist(), strict=True):
        step = dict(zip(row[0:8:2], row[1:8:2], strict=True))
        assert len(step) == 4
        assert sorted(step) == sorted(step.values())
        assert step[step[row[8]]] == answer
        assert answer != row[8]  # one cycle of four: two steps never lead back


def test_the_querys_block_can_be_kept_from_the_first_place() -> None:
    hop = HopSequences(n_items=3, vocab=6, query_never_first=True)
    tokens, _, _ = hop.sample(200, torch.Generator().manual_seed(0))
    assert not bool((tokens[:, 0] == tokens[:, -1]).any())


def test_spread_blocks_are_never_neighbours() -> None:
    hop = HopSequences(n_items=3, vocab=6)
    _, _, places = hop.sample(100, torch.Generator().manual_seed(0))
    for row in places.tolist():
        blocks = [row[i : i + 2] for i in range(0, 7, 2)]
        assert all(b[-1] == b[0] + len(b) - 1 for b in blocks)
        starts = sorted(b[0] for b in blocks)
        assert all(b - a >= 3 for a, b in pairwise(starts))
    assert int(places.max()) < hop.n_positions == 16


def test_a_vocabulary_that_teaches_a_shortcut_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="needs spare tokens"):
        HopSequences(n_items=6, vocab=11)


def test_permutations_are_what_they_are_called() -> None:
    def points(permutation) -> torch.Tensor:
        hop = HopSequences(4, 8, hops=1, permutation=permutation)
        tokens, _, _ = hop.sample(3000, torch.Generator().manual_seed(1))
        return (tokens[:, 0:8:2] == tokens[:, 1:8:2]).sum(1)

    assert int(points("cycle").max()) == int(points("derangement").max()) == 0
    assert float(points("any").double().mean()) == pytest.approx(1.0, abs=0.06)  # one on average
    with pytest.raises(InvalidArgumentError, match="no such permutation; got 'shuffle'"):
        HopSequences(4, 8, permutation="shuffle")  # type: ignore[arg-type]
