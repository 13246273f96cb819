"""Recipes by which small models learn the registered tasks, one per task and setting.

`benchmarks/tasks_train.py` runs them and records what each reaches; a recipe that falls short of
the ceiling says so there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from imir_detect.errors import UnknownNameError
from imir_detect.tasks import Task, make_task
from imir_detect.training.curriculum import Stage, train_stages
from imir_detect.training.loop import Recipe, TrainingRun
from imir_detect.weights.native import ModelSpec


@dataclass(frozen=True)
class TaskRecipe:
    """A task with its knobs, the shape of a model, and how to train it.

    - `shape`: ModelSpec's fields but for the vocabulary and the context, which the task gives.
    - `before`: a curriculum, other knobs of the same task with a recipe each, trained on in this
      order before `knobs`. Each must have the task's vocabulary, and fit into its positions.
    """

    task: str
    knobs: dict[str, Any] = field(default_factory=dict)
    shape: dict[str, Any] = field(default_factory=dict)
    recipe: Recipe = field(default_factory=Recipe)
    before: tuple[tuple[Mapping[str, Any], Recipe], ...] = ()

    def train(self, *, folder: Path | str | None = None, progress: bool = True) -> TrainingRun:
        """Train a model through all stages; with `folder`, resumable there (`train_stages`)."""
        task, spec, recipe = self.make()
        stages = [Stage(make_task(self.task, **knobs), how) for knobs, how in self.before]
        return train_stages([*stages, Stage(task, recipe)], spec, folder=folder, progress=progress)

    def make(self) -> tuple[Task, ModelSpec, Recipe]:
        """The task itself, its model, and the recipe of the last stage: what `train` takes for a
        recipe without a curriculum."""
        task = make_task(self.task, **self.knobs)
        return task, ModelSpec(task.vocab_size, task.n_positions, **self.shape), self.recipe


def _until(accuracy: float, steps: int = 3000, **changes: Any) -> Recipe:
    return Recipe(steps=steps, stop_at={"accuracy": accuracy}, **changes)


MLP = {"d_mlp": 256, "norm": "LN"}

# Tried because "j tokens back" is one thing to learn here, not one per position; the reason is
# untested: heads are also wider (32) than in the runs with learned positions that fell short.
ROTARY = {"n_heads": 4, "d_head": 32, "position": "rotary"}
SHORT = {"n_blocks": 6, "n_rare": 32}
DEEP = {"n_layers": 3, "n_heads": 2, "norm": "LN"}

# From scratch, fragments stay at what the arity of the question alone gives. Few blocks of one
# premise are learned; then the arity; then the second premise, which decides little (and so teaches
# little) unless many rules have two.
ONE_STEP = (
    ({"n_blocks": 2, "binary": 0}, _until(0.9, 1000)),
    ({"n_blocks": 6, "binary": 0}, _until(0.95, 1000)),
    ({"n_blocks": 4, "binary": 2}, _until(0.94, 1000)),
    ({"n_blocks": 5, "binary": 4}, _until(0.98, 2500, rate=2e-3)),
)

RECIPES: dict[str, TaskRecipe] = {
    "recall": TaskRecipe("recall", {"variability": 0.5}, recipe=_until(0.99)),
    "ngram-2": TaskRecipe("ngram", {"block_length": 2}, recipe=_until(0.99)),
    "ngram-3": TaskRecipe("ngram", {"block_length": 3, **SHORT}, ROTARY, _until(0.99, 2000)),
    "ngram-4": TaskRecipe("ngram", {"block_length": 4, **SHORT}, ROTARY, _until(0.99, 6000)),
    "k_hop-1": TaskRecipe("k_hop", {"hops": 1}, recipe=_until(0.99)),
    "k_hop-2": TaskRecipe("k_hop", {"hops": 2}, {"n_layers": 3}, _until(0.99, 4000)),
    "k_hop-3": TaskRecipe(
        "k_hop",
        {"hops": 3},
        {"n_layers": 4},
        _until(0.99, 4000),
        (({"hops": 1}, _until(0.98, 1000)), ({"hops": 2}, _until(0.97, 2000))),
    ),
    "k_hop-4": TaskRecipe("k_hop", {"hops": 4}, {"n_layers": 5}, _until(0.99, 4000)),
    "ioi-1": TaskRecipe("ioi", {"n_blocks": 1}, DEEP, _until(0.99, 1500)),
    "ioi-2": TaskRecipe("ioi", {"n_blocks": 2}, DEEP, _until(0.99, 1500)),
    "conditional": TaskRecipe("conditional", SHORT, ROTARY, _until(0.99, 2000)),
    "inversion": TaskRecipe("inversion", {}, {"n_heads": 2}, _until(0.99, 2500)),
    "automaton": TaskRecipe("automaton", {}, {"n_heads": 4, **MLP}, _until(0.9, 1500)),
    "fragments-1": TaskRecipe(
        "fragments", {}, ROTARY, _until(0.99, 2000, rate=2e-3, tail=0.5), ONE_STEP
    ),
    # Not learned, nor was any stage of two steps: models settle on the end of any chain.
    "fragments-2": TaskRecipe(
        "fragments",
        {"depth": 2, "n_blocks": 8, "binary": 2},
        {"n_layers": 3, **ROTARY},
        _until(0.99, 2000),
    ),
    "text": TaskRecipe("text", {}, {"n_heads": 2}, _until(0.98, 1500)),
    "mixture": TaskRecipe("mixture", {}, {"n_heads": 2}, _until(0.99, 1500)),
    "copy_last": TaskRecipe("copy_last", {}, {"n_layers": 1}, _until(0.995, 1000)),
    "offset_copy": TaskRecipe("offset_copy", {}, {"n_layers": 1}, _until(0.995, 1000)),
    "unigram": TaskRecipe("unigram", {}, {"n_layers": 1, **MLP}, _until(0.9, 1000)),
    "majority": TaskRecipe("majority", {}, {"n_layers": 1, **MLP}, _until(0.99, 1500)),
    "sorting": TaskRecipe("sorting", {}, {"n_heads": 4, **MLP}, _until(0.99, 1500)),
    "periodic": TaskRecipe("periodic", {}, {"n_layers": 1}, _until(0.995, 1000)),
}


def task_recipe(name: str) -> TaskRecipe:
    """The recipe of that name.

    >>> task_recipe("k_hop-2").shape
    {'n_layers': 3}
    """
    if name not in RECIPES:
        raise UnknownNameError(
            "no such recipe",
            got=repr(name),
            wanted=f"one of {', '.join(RECIPES)}",
            todo="pass one of these, or write a TaskRecipe of your own",
        )
    return RECIPES[name]
