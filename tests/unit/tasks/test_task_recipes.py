"""Every task has a recipe, and each recipe is one that `train` accepts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from imir_detect.errors import UnknownNameError
from imir_detect.tasks import REGISTRY, LabelledTask, make_task
from imir_detect.training.loop import check_fit, train
from imir_detect.training.recipes import RECIPES, task_recipe


def test_every_labelled_task_has_a_recipe() -> None:
    labelled = {name for name in REGISTRY if isinstance(make_task(name), LabelledTask)}
    assert {recipe.task for recipe in RECIPES.values()} == labelled


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_s_model_fits_its_task_and_stops_at_a_target(name: str) -> None:
    task, spec, recipe = task_recipe(name).make()
    assert spec.d_vocab == task.vocab_size
    assert spec.n_ctx == task.n_positions
    assert recipe.stop_at["accuracy"] > 0.5
    if isinstance(task, LabelledTask) and spec.d_mlp == 0:
        assert spec.n_layers >= min(circuit.layers for circuit in task.expected_circuits)


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.before])
def test_a_curriculum_fits_the_task_s_model(name: str) -> None:
    recipe = task_recipe(name)
    task, spec, _ = recipe.make()
    for knobs, how in recipe.before:
        easier = make_task(recipe.task, **knobs)
        assert easier != task
        check_fit(easier, spec)
        assert how.stop_at["accuracy"] > 0.5


def test_a_recipe_trains() -> None:
    task, spec, recipe = task_recipe("copy_last").make()
    run = train(task, spec, replace(recipe, steps=3, batch=8), progress=False)
    assert len(run.history) == 1
    assert run.history[0]["step"] == 3


def test_an_unknown_recipe_names_those_that_there_are() -> None:
    with pytest.raises(UnknownNameError, match=r"'ioi'.*ioi-1.*TaskRecipe of your own"):
        task_recipe("ioi")
