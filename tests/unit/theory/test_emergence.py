"""Gradient flow: order of the coordinates, growth with length, and what it refuses."""

from __future__ import annotations

import sys

import pytest
import torch

from imir_detect.errors import ImirError, InvalidArgumentError
from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory import emergence as module
from imir_detect.theory.emergence import Emergence, emergence, exponent, exponents
from imir_detect.theory.reduced import Reduced


def task(n: int) -> AssociativeRecall:
    return AssociativeRecall(
        n_blocks=n, n_common=0, n_rare=4 * n, rare_frequency=1.0, query_never_first=True
    )


@pytest.mark.parametrize("loss", ["mse", "ce"])
def test_longer_contexts_take_longer_and_gamma_comes_first(loss) -> None:
    short, long = (emergence(task(n), loss=loss, n=64) for n in (4, 8))
    assert long.time > 1.3 * short.time
    assert short.order == ("gamma", "beta", "alpha")
    assert all(value > 0.5 for value in short.final.values())


def test_squared_error_is_that_of_the_one_hot_answer() -> None:
    batch = task(3).sample(8, generator=torch.Generator().manual_seed(0))
    logits = Reduced.of(1.0, 1.0, 1.0).logits(batch.tokens, task(3).relation)
    wanted = (logits - torch.nn.functional.one_hot(batch.targets[:, -1], 12)).square().sum(1) / 2
    assert torch.allclose(module._mean_loss(logits, batch, "mse"), wanted.mean())


def test_exponents_of_a_power_law() -> None:
    runs = [Emergence(n, "mse", 3.0 * n**1.5, {}, {}) for n in (8, 16, 64)]
    assert exponents(runs) == pytest.approx([1.5, 1.5])
    assert exponent(runs) == pytest.approx(1.5)


def test_a_start_without_a_way_out_is_named(monkeypatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 1.0)
    with pytest.raises(ImirError, match="does not emerge"):
        emergence(task(4), n=16)


def test_a_missing_scipy_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.integrate", None)
    with pytest.raises(ImirError, match="gradient flow needs scipy"):
        emergence(task(4), n=16)


def test_what_it_is_not_stated_for_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"emergence time.*rare_frequency=0.5"):
        emergence(AssociativeRecall())
    with pytest.raises(InvalidArgumentError, match="no such loss"):
        emergence(task(4), loss="hinge")
