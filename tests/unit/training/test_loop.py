"""Training: seeded, resumable to the same weights, stopped at its target, checked beforehand."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from imir_detect.errors import (
    BusyFolderError,
    InvalidArgumentError,
    UnreadableFileError,
    UnwritableFileError,
)
from imir_detect.files import hold
from imir_detect.tasks import make_task
from imir_detect.training import loop
from imir_detect.training.behaviour import measured_label
from imir_detect.training.checkpoint import Checkpoint
from imir_detect.training.loop import Recipe, train
from imir_detect.training.saved import train_and_save
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import parameters

TASK = make_task("recall", n_blocks=2, n_common=6, n_rare=6)
SPEC = ModelSpec(TASK.vocab_size, TASK.n_positions, d_model=16, n_heads=1, norm="LN", d_mlp=8)
RECIPE = Recipe(steps=12, batch=8, evaluate_every=4, seed=3)


def weights(run: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in parameters(run.model).items()}


def assert_equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


class Killed(Exception):
    """What stops a run in the middle of a step."""


@pytest.mark.parametrize("last_step", [2, 5, 9])
def test_a_killed_run_resumes_to_the_same_weights(
    last_step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(TASK, SPEC, RECIPE, progress=False)
    done, step = 0, loop._step

    def failing(*args: Any) -> float:
        nonlocal done
        if done == last_step:
            raise Killed
        done += 1
        return step(*args)

    monkeypatch.setattr(loop, "_step", failing)
    with pytest.raises(Killed):
        train(TASK, SPEC, RECIPE, folder=tmp_path, progress=False)
    monkeypatch.setattr(loop, "_step", step)
    resumed = train(TASK, SPEC, RECIPE, folder=tmp_path, progress=False)
    assert_equal(weights(resumed), weights(whole))
    assert resumed.history == whole.history


def test_a_finished_run_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train(TASK, SPEC, RECIPE, folder=tmp_path, progress=False)
    monkeypatch.setattr(loop, "_step", None)  # any further step would fail
    assert_equal(
        weights(train(TASK, SPEC, RECIPE, folder=tmp_path, progress=False)), weights(first)
    )


def test_the_seed_decides_everything() -> None:
    again = train(TASK, SPEC, RECIPE, progress=False)
    assert_equal(weights(train(TASK, SPEC, RECIPE, progress=False)), weights(again))
    other = train(TASK, SPEC, Recipe(steps=12, batch=8, evaluate_every=4, seed=4), progress=False)
    assert not torch.equal(weights(other)["tok_embed.weight"], weights(again)["tok_embed.weight"])


def test_a_run_stops_at_its_target() -> None:
    recipe = Recipe(steps=12, batch=8, evaluate_every=4, stop_at={"accuracy": 0.0})
    run = train(TASK, SPEC, recipe, progress=False)
    assert run.reached
    assert run.history[-1]["step"] == 4


def test_a_short_run_learns_an_association() -> None:
    task = make_task("recall", n_blocks=2, n_common=8, n_rare=0, rare_frequency=0.0, present=0.0)
    spec = ModelSpec(task.vocab_size, task.n_positions, d_model=16, n_heads=1)
    recipe = Recipe(steps=300, batch=64, rate=1e-2, stop_at={"iwl_accuracy": 0.99})
    assert train(task, spec, recipe, progress=False).measured["iwl_accuracy"] > 0.99


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    train(TASK, SPEC, RECIPE, folder=tmp_path, progress=False)
    other = Recipe(steps=12, batch=8, evaluate_every=4, seed=9)
    with pytest.raises(InvalidArgumentError) as caught:
        train(TASK, SPEC, other, folder=tmp_path, progress=False)
    assert str(caught.value).split("; ", 1) == [
        f"{tmp_path / 'checkpoint.safetensors'} belongs to another run",
        "got recipe.seed=9; wanted recipe.seed=3; next step: use another folder, or remove this "
        "one to start over",
    ]


def test_a_folder_that_another_run_works_in_is_refused(tmp_path: Path) -> None:
    with hold(tmp_path), pytest.raises(BusyFolderError, match="another run is at work in"):
        train(TASK, SPEC, RECIPE, folder=tmp_path, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_stops_a_run_that_then_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UnwritableFileError, match="got OSError: No space left on device"):
            train(TASK, SPEC, RECIPE, folder=tmp_path, progress=False)
    assert list(tmp_path.iterdir()) == []
    train(TASK, SPEC, RECIPE, folder=tmp_path, progress=False)


def test_a_run_that_diverges_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_step", lambda *args: float("nan"))
    with pytest.raises(
        InvalidArgumentError, match="training diverged; got a loss of nan at step 3"
    ):
        train(TASK, SPEC, RECIPE, progress=False)


def test_a_checkpoint_without_its_tensors_is_named(tmp_path: Path) -> None:
    train(TASK, SPEC, RECIPE, folder=tmp_path, progress=False)
    file = tmp_path / "checkpoint.safetensors"
    found = Checkpoint.read(file)
    Checkpoint(found.identity, found.state, {"generator": found.tensors["generator"]}).write(file)
    with pytest.raises(UnreadableFileError, match=r"unreadable checkpoint .*got KeyError"):
        train(TASK, SPEC, RECIPE, folder=tmp_path, progress=False)


def test_a_saved_model_is_not_trained_again_and_another_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = train_and_save(TASK, SPEC, RECIPE, tmp_path, progress=False, name="mine")
    assert card["name"] == "mine"
    assert card["recipe"]["seed"] == 3
    assert {file.name for file in tmp_path.iterdir()} == {"model.safetensors", "card.json"}
    monkeypatch.setattr(loop, "_step", None)  # any further step would fail
    assert train_and_save(TASK, SPEC, RECIPE, tmp_path, progress=False) == card
    wider = ModelSpec(TASK.vocab_size, TASK.n_positions, d_model=32, n_heads=1, norm="LN", d_mlp=8)
    with pytest.raises(InvalidArgumentError, match=r"got spec.d_model=32; wanted spec.d_model=16"):
        train_and_save(TASK, wider, RECIPE, tmp_path, progress=False)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(b"\x00" * 9)
    with pytest.raises(UnreadableFileError, match=r"unreadable checkpoint .*remove the file"):
        train(TASK, SPEC, RECIPE, folder=tmp_path, progress=False)


def test_a_model_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="does not fit the task; got d_vocab=5"):
        train(TASK, ModelSpec(5, 9), RECIPE, progress=False)
    with pytest.raises(InvalidArgumentError, match="this recipe cannot run"):
        Recipe(steps=0)


def test_the_rate_warms_up_stays_and_falls() -> None:
    recipe = Recipe(steps=100, warmup=10, tail=0.2, rate=1.0)
    assert recipe.rate_at(0) == pytest.approx(0.1)
    assert recipe.rate_at(50) == 1.0
    assert recipe.rate_at(90) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("icl", "iwl", "label"),
    [
        (0.95, 0.1, "icl"),
        (0.1, 0.95, "iwl"),
        (0.95, 0.95, "mixed"),
        (0.2, 0.2, "none"),
        (0.5, 0.95, "ambiguous"),
        (0.95, 0.3, "ambiguous"),
    ],
)
def test_measured_labels_follow_the_contract(icl: float, iwl: float, label: str) -> None:
    assert measured_label({"icl_accuracy": icl, "iwl_accuracy": iwl}) == label
