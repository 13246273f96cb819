"""The front door: arguments are checked, the caller's model and random state are left alone."""

import subprocess
import sys
from typing import Any

import planted
import pytest
import torch

from imir_detect import Report, detect_circuits, make_task, read_weights
from imir_detect.errors import ImirError, InvalidArgumentError, UnknownNameError


@pytest.fixture(scope="module")
def model() -> Any:
    return planted.induction()


@pytest.fixture(scope="module")
def report(model: Any) -> Report:
    return detect_circuits(model)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"context": 2}, "this context does not fit.*wanted a whole number in 3 .. 14"),
        ({"context": 99}, "got context=99"),
        ({"context": "8"}, "got context='8'"),
        ({"verify": "patch"}, "no such verification; got 'patch'"),
        ({"relation": {0: 99}}, "cannot have; got 1 of 1 pairs: 0 -> 99"),
        ({"relation": {3: 3}}, "never its own partner"),
        ({"relation": torch.zeros(2, 2)}, r"does not fit the model; got shape \(2, 2\)"),
        ({"relation": torch.zeros(14)}, "whole numbers of shape"),
        ({"relation": torch.full((20,), -1)}, r"got shape \(20,\)"),
        ({"task": "recall"}, "the task does not fit the model; got 64 tokens"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    model: Any, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        detect_circuits(model, **arguments)


def test_an_unknown_task_is_named(model: Any) -> None:
    with pytest.raises(UnknownNameError, match="no such task; got 'recal'; wanted one of"):
        detect_circuits(model, task="recal")


def test_bare_weights_give_the_models_own_report(model: Any, report: Report) -> None:
    weights = read_weights(model)
    assert detect_circuits(weights) == report
    with pytest.raises(InvalidArgumentError, match="ablation needs a model that runs"):
        detect_circuits(weights, verify="ablate")


def small_task(**knobs: Any) -> Any:
    return make_task("recall", n_blocks=2, n_common=6, n_rare=8, **knobs)


def test_bare_weights_run_a_task_where_positions_are_consecutive(model: Any) -> None:
    weights = read_weights(model)
    with_model = detect_circuits(model, task=small_task()).measured
    alone = detect_circuits(weights, task=small_task()).measured
    assert alone["icl_accuracy"] == pytest.approx(with_model["icl_accuracy"], abs=0.01)
    with pytest.raises(InvalidArgumentError, match="consecutive positions only"):
        detect_circuits(weights, task=small_task(offsets="disjoint"))


@pytest.mark.parametrize("training", [True, False])
def test_the_model_comes_back_untouched(training: bool) -> None:
    model = planted.induction(norm="LN")
    model.train(training)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    flags = {n: (p.requires_grad, p.dtype, p.device) for n, p in model.named_parameters()}
    config, hooks = dict(vars(model.cfg)), sum(len(h.fwd_hooks) for h in model.hook_dict.values())
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first = detect_circuits(model, task=small_task(), verify="ablate")
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training is training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert flags == {n: (p.requires_grad, p.dtype, p.device) for n, p in model.named_parameters()}
    assert all(p.grad is None for p in model.parameters())
    assert dict(vars(model.cfg)) == config
    assert sum(len(h.fwd_hooks) for h in model.hook_dict.values()) == hooks
    assert detect_circuits(model, task=small_task(), verify="ablate") == first


def test_the_seed_moves_only_what_is_sampled(model: Any, report: Report) -> None:
    first, second = report, detect_circuits(model, seed=1)
    assert first.label == second.label
    assert [c.kind for c in first.circuits] == [c.kind for c in second.circuits]
    assert first.coordinates.column("effect") == second.coordinates.column("effect")


def test_ablation_of_the_planted_heads_destroys_the_answer(model: Any) -> None:
    check = detect_circuits(model, verify="ablate").measured["ablation"]["induction"]
    assert check["heads"] == ["L0H0", "L1H0"]
    assert check["intact"] > 0.8
    assert check["ablated"] < 0.2
    assert check["random"] == pytest.approx(check["intact"])  # the other heads do nothing


def test_errors_of_the_package_share_a_root() -> None:
    with pytest.raises(ImirError):
        detect_circuits(object())


LIGHT = """
import sys, time
import torch
start = time.perf_counter()
import imir_detect
seconds = time.perf_counter() - start
heavy = {"transformer_lens", "pandas", "matplotlib", "plotly", "sklearn", "transformers"}
print(sorted(heavy & set(sys.modules)))
"""


def test_importing_the_package_is_light() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
