"""The same call gives the same bits; threads and batches change rounding only; the caller's random
states and threads stay. `benchmarks/determinism.py` measures how much."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from imir_detect import detect_circuits, shipped_model
from imir_detect.coordinates import extended
from imir_detect.tasks import REGISTRY, make_task
from imir_detect.training.loop import Recipe, train
from imir_detect.training.stack import Member, train_stack
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import parameters

TASK = make_task("recall", n_blocks=4)
SPEC = ModelSpec(TASK.vocab_size, TASK.n_positions, n_heads=2, d_model=32, norm="LN")


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def trained() -> list[torch.Tensor]:
    run = train(TASK, SPEC, Recipe(steps=5, batch=128, evaluate_every=5), progress=False)
    return [p.detach() for p in parameters(run.model).values()]


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def largest_difference(a: Any, b: Any) -> float:
    """Of two reports' numbers; everything else must be equal."""
    worst = 0.0
    texts = [json.loads(json.dumps(report.to_dict())) for report in (a, b)]
    for x, y in zip(*map(leaves, texts), strict=True):
        if isinstance(x, float):
            worst = max(worst, abs(x - y))
        else:
            assert x == y
    return worst


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_data_does_not_depend_on_threads(name: str, threads: Callable[[int], None]) -> None:
    found = []
    for number in (1, 2):
        threads(number)
        batch = make_task(name).sample(64, generator=torch.Generator().manual_seed(0))
        found.append((batch.tokens, batch.targets))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def test_training_differs_by_rounding_with_other_threads(threads: Callable[[int], None]) -> None:
    threads(1)
    first, again = trained(), trained()
    assert all(map(torch.equal, first, again))
    threads(2)
    for a, b in zip(first, trained(), strict=True):
        # Adam's first steps are a whole rate (3e-3 / 50 each) wherever a gradient is round-off.
        assert float((a - b).abs().max()) < 2e-3


def test_a_report_is_the_same_but_for_the_last_digits(threads: Callable[[int], None]) -> None:
    model = shipped_model("icl")
    threads(1)
    first = detect_circuits(model)
    assert detect_circuits(model) == first
    threads(2)
    assert largest_difference(first, detect_circuits(model)) < 1e-12


def test_a_deep_report_does_not_depend_on_how_many_contexts_are_run_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ModelSpec(48, 24, n_layers=6, n_heads=2, d_model=32, norm="LN", d_mlp=32).boot(seed=0)
    first = detect_circuits(model)
    assert detect_circuits(model) == first
    monkeypatch.setattr(extended, "BATCH", 3)
    assert largest_difference(first, detect_circuits(model)) < 1e-6  # the model's own float32


def test_random_states_and_threads_of_the_caller_stay() -> None:
    def states() -> tuple[Any, ...]:
        numpy = np.random.get_state()  # noqa: NPY002
        torch_state = torch.get_rng_state().tolist()
        return (random.getstate(), str(numpy), torch_state, torch.get_num_threads())

    before = states()
    trained()
    list(train_stack([Member("a", TASK, Recipe(steps=2, batch=4, evaluate_every=2))], SPEC))
    detect_circuits(SPEC.boot(seed=1), task=TASK, verify="ablate")
    assert states() == before
