"""A curriculum is its stages trained by hand, one from what the other left, and survives a kill."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks import make_task
from imir_detect.training import loop
from imir_detect.training.curriculum import Stage, train_stages
from imir_detect.training.loop import Recipe, TrainingRun, train
from imir_detect.training.recipes import TaskRecipe
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import parameters

EASY = make_task("fragments", n_blocks=2, binary=0)
HARD = make_task("fragments", n_blocks=4, binary=2)
SPEC = ModelSpec(HARD.vocab_size, HARD.n_positions, d_model=16, position="rotary")
FIRST = Recipe(steps=6, batch=8, evaluate_every=3, seed=3)
SECOND = Recipe(steps=5, batch=8, evaluate_every=4, seed=4)
STAGES = (Stage(EASY, FIRST), Stage(HARD, SECOND))


def weights(run: TrainingRun) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in parameters(run.model).items()}


def assert_equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_two_stages_are_the_two_runs_by_hand() -> None:
    both = train_stages(STAGES, SPEC, progress=False)
    first = train(EASY, SPEC, FIRST, progress=False)
    second = train(HARD, SPEC, SECOND, progress=False, start=weights(first))
    assert_equal(weights(both), weights(second))
    assert not torch.equal(weights(both)["tok_embed.weight"], weights(first)["tok_embed.weight"])
    assert [row["step"] for row in both.history] == [3, 6, 10, 11]
    assert [row["loss"] for row in both.history] == [
        row["loss"] for run in (first, second) for row in run.history
    ]


def test_a_start_is_copied_and_replaces_the_fresh_model() -> None:
    fresh = {name: p.detach().clone() for name, p in parameters(SPEC.boot(seed=7)).items()}
    still = replace(FIRST, rate=0.0)
    run = train(EASY, SPEC, still, progress=False, start=fresh)
    assert_equal(weights(run), fresh)
    train(EASY, SPEC, FIRST, progress=False, start=fresh)
    assert_equal(weights(run), fresh)


class Killed(Exception):
    """What stops a run in the middle of a step."""


@pytest.mark.parametrize("last_step", [4, 6, 10])
def test_a_killed_curriculum_resumes_to_the_same_weights(
    last_step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_stages(STAGES, SPEC, progress=False)
    done, step = 0, loop._step

    def failing(*args: Any) -> float:
        nonlocal done
        if done == last_step:
            raise Killed
        done += 1
        return step(*args)

    monkeypatch.setattr(loop, "_step", failing)
    with pytest.raises(Killed):
        train_stages(STAGES, SPEC, folder=tmp_path, progress=False)
    monkeypatch.setattr(loop, "_step", step)
    resumed = train_stages(STAGES, SPEC, folder=tmp_path, progress=False)
    assert_equal(weights(resumed), weights(whole))
    assert resumed.history == whole.history
    monkeypatch.setattr(loop, "_step", None)  # any further step would fail
    assert_equal(
        weights(train_stages(STAGES, SPEC, folder=tmp_path, progress=False)), weights(whole)
    )


def test_a_stage_of_another_beginning_is_refused(tmp_path: Path) -> None:
    train_stages(STAGES, SPEC, folder=tmp_path, progress=False)
    (tmp_path / "stage-1" / "checkpoint.safetensors").unlink()
    other = Stage(EASY, replace(FIRST, seed=5))
    with pytest.raises(InvalidArgumentError, match=r"stage-2.* belongs to another run; got start="):
        train_stages([other, STAGES[1]], SPEC, folder=tmp_path, progress=False)


def test_a_first_stage_that_reaches_its_target_gives_way_to_the_next() -> None:
    soon = Stage(EASY, replace(FIRST, stop_at={"accuracy": 0.0}))
    run = train_stages([soon, STAGES[1]], SPEC, progress=False)
    assert [row["step"] for row in run.history] == [3, 7, 8]
    assert not run.reached


def test_a_task_recipe_trains_its_curriculum_first() -> None:
    knobs = {"n_blocks": 4, "binary": 2}
    shape = {"d_model": 16, "position": "rotary"}
    before = (({"n_blocks": 2, "binary": 0}, FIRST),)
    recipe = TaskRecipe("fragments", knobs, shape, SECOND, before)
    whole = train_stages(STAGES, SPEC, progress=False)
    assert_equal(weights(recipe.train(progress=False)), weights(whole))
    alone = train(*replace(recipe, before=()).make(), progress=False)
    assert_equal(weights(replace(recipe, before=()).train(progress=False)), weights(alone))


@pytest.mark.parametrize(
    ("knobs", "got"),
    [({"n_rare": 33}, "d_vocab=34, n_ctx=22; wanted d_vocab=35"), ({"n_blocks": 6}, "at least 25")],
)
def test_a_stage_that_does_not_fit_is_refused_before_anything_is_trained(
    knobs: dict[str, int], got: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_step", None)  # any step would fail
    recipe = TaskRecipe("fragments", {"n_blocks": 5}, recipe=SECOND, before=((knobs, FIRST),))
    with pytest.raises(
        InvalidArgumentError, match=rf"the model does not fit the task; got .*{got}"
    ):
        recipe.train(progress=False)
    fits = Stage(EASY, FIRST)
    with pytest.raises(InvalidArgumentError, match="the model does not fit the task"):
        train_stages([fits, Stage(make_task("fragments", **knobs), FIRST)], SPEC, progress=False)


def test_no_stage_is_refused() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        train_stages([], SPEC)
    assert str(caught.value) == (
        "a curriculum without stages; got no stage; wanted at least one task with its recipe; "
        "next step: pass the stages in order, the task to learn last"
    )
