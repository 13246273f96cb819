"""The circuits that are said to solve a task solve it, run as what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from circuit_interpreter import run_circuit
from task_cases import labelled

from imir_detect.tasks import IGNORE
from imir_detect.tasks.labels import induction


def anywhere(place: int) -> bool:
    return True


def odd(place: int) -> bool:
    return place % 2 == 1


def second_name(place: int) -> bool:
    return place % 4 == 2


# Task, knobs, which of its circuits, the places of its "place" unit, share of questions at least.
RUNS: list[tuple[str, dict[str, Any], int, Callable[[int], bool], float]] = [
    ("recall", {"variability": 0.5}, 0, anywhere, 1.0),
    ("recall", {"burstiness": 3, "directed": True}, 0, anywhere, 1.0),
    ("ngram", {"block_length": 2}, 0, anywhere, 1.0),
    ("ngram", {"block_length": 3}, 0, anywhere, 1.0),
    ("ngram", {"block_length": 4}, 0, anywhere, 1.0),
    ("conditional", {"conditions": 3, "n_blocks": 9}, 0, anywhere, 1.0),
    *(("k_hop", {"hops": k}, 0, odd, 1.0) for k in (1, 2, 3, 4)),
    ("k_hop", {"hops": 3, "structure": "permutation", "burstiness": 2}, 0, odd, 1.0),
    ("k_hop", {"hops": 2, "distractors": 3}, 0, odd, 1.0),
    ("inversion", {}, 0, odd, 1.0),
    ("inversion", {"structure": "permutation"}, 0, odd, 1.0),
    ("ioi", {"n_blocks": 1}, 1, second_name, 1.0),
    ("ioi", {"n_blocks": 3}, 0, second_name, 1.0),
    ("fragments", {}, 0, anywhere, 0.85),
    ("fragments", {"depth": 2, "n_blocks": 8, "binary": 2}, 0, anywhere, 0.85),
    ("fragments", {"n_blocks": 6, "depth": 3, "binary": 2}, 0, anywhere, 1.0),
    ("text", {}, 0, anywhere, 0.65),
    ("text", {}, 1, anywhere, 0.9),
    ("copy_last", {}, 0, anywhere, 1.0),
    ("offset_copy", {}, 0, anywhere, 1.0),
    ("periodic", {}, 0, anywhere, 1.0),
    ("periodic", {"period": 1}, 0, anywhere, 1.0),
]


def share_right(name: str, knobs: dict[str, Any], circuit: Any, allowed: Any, n: int) -> float:
    batch = labelled((name, knobs)).sample(n, generator=torch.Generator().manual_seed(4))
    right = asked = 0
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        for place, target in enumerate(targets):
            if target != IGNORE:
                asked += 1
                right += run_circuit(circuit, tokens, allowed, place) == target
    return right / asked


@pytest.mark.parametrize(("name", "knobs", "which", "allowed", "least"), RUNS)
def test_an_expected_circuit_solves_its_task(
    name: str, knobs: dict[str, Any], which: int, allowed: Callable[[int], bool], least: float
) -> None:
    circuit = labelled((name, knobs)).expected_circuits[which]
    assert share_right(name, knobs, circuit, allowed, 60) >= least


@pytest.mark.parametrize(
    ("name", "knobs", "at_most"),
    [
        ("ngram", {}, 0.7),
        ("k_hop", {"hops": 2}, 0.1),
        ("inversion", {}, 0.1),
        ("copy_last", {}, 0.01),
    ],
)
def test_plain_induction_does_not_solve_what_needs_more(
    name: str, knobs: dict[str, Any], at_most: float
) -> None:
    assert share_right(name, knobs, induction(), anywhere, 60) <= at_most


def test_matches_need_their_places_in_consecutive_blocks() -> None:
    knobs = {"hops": 2}
    circuit = labelled(("k_hop", knobs)).expected_circuits[0]
    assert share_right("k_hop", knobs, circuit, anywhere, 60) < 0.9
