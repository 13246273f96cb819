"""Threads and batches change rounding only; the caller's random states and threads stay.

`benchmarks/determinism.py` measures training, reports, rows and cards the same way.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from imir_detect import detect_circuits
from imir_detect.tasks import make_task
from imir_detect.training.loop import Recipe, train
from imir_detect.training.stack import Member, train_stack
from imir_detect.weights.native import ModelSpec

TASK = make_task("recall", n_blocks=4)
SPEC = ModelSpec(TASK.vocab_size, TASK.n_positions, n_heads=2, d_model=32, norm="LN")


def test_data_is_the_same_and_logits_differ_by_rounding_with_other_threads_and_batches() -> None:
    model = SPEC.boot(seed=0).original_model.requires_grad_(False)
    before, found = torch.get_num_threads(), []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            batch = TASK.sample(64, generator=torch.Generator().manual_seed(0))
            found.append((batch.tokens, batch.targets, model(batch.tokens)))
    finally:
        torch.set_num_threads(before)
    (tokens, targets, logits), (again, targets_again, other) = found
    assert torch.equal(tokens, again)
    assert torch.equal(targets, targets_again)
    assert float((logits - other).abs().max()) < 1e-5
    alone = torch.cat([model(row[None]) for row in tokens])
    assert float((logits - alone).abs().max()) < 1e-5


def test_random_states_and_threads_of_the_caller_stay() -> None:
    def states() -> tuple[Any, ...]:
        numpy = np.random.get_state()  # noqa: NPY002
        torch_state = torch.get_rng_state().tolist()
        return (random.getstate(), str(numpy), torch_state, torch.get_num_threads())

    before = states()
    recipe = Recipe(steps=2, batch=4, evaluate_every=2)
    train(TASK, SPEC, recipe, progress=False)
    list(train_stack([Member("a", TASK, recipe)], SPEC))
    detect_circuits(SPEC.boot(seed=1), task=TASK, verify="ablate")
    assert states() == before
