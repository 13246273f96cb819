"""Train one model on several tasks, one after the other: a curriculum.

Where a task is learned only after a long plateau, or not at all, an easier setting of it (fewer
blocks, fewer premises, fewer hops) shows the parts that the harder one puts together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks.base import Task
from imir_detect.training.loop import Recipe, TrainingRun, check_fit, train
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import parameters


@dataclass(frozen=True)
class Stage:
    """A task and how to train on it."""

    task: Task
    recipe: Recipe


def train_stages(
    stages: Sequence[Stage],
    spec: ModelSpec,
    *,
    folder: Path | str | None = None,
    progress: bool = True,
) -> TrainingRun:
    """Train a model of `spec` stage by stage, each from the parameters that the one before left.

    A stage is one call of `train`: its optimiser, rates and data begin anew, its recipe's seed
    decides its data, and the first one's seed the fresh model. It ends at its target or after its
    steps, whichever comes first; that it falls short of its target does not stop the next.

    The history holds all evaluations, with steps counted through, so the last row's step is what
    the model cost; `reached` is the last stage's. With `folder`, every stage keeps its last
    checkpoint in folder/stage-1, ...: killed at any moment, the same call goes on to the same
    weights. Raises, before anything is trained, where there is no stage, or one asks for tokens or
    positions other than the model's.

    >>> from imir_detect.tasks import make_task
    >>> easy, hard = (make_task("k_hop", hops=k) for k in (1, 2))
    >>> short = Recipe(steps=2, batch=4)
    >>> spec = ModelSpec(hard.vocab_size, hard.n_positions, d_model=8)
    >>> run = train_stages([Stage(easy, short), Stage(hard, short)], spec, progress=False)
    >>> [row["step"] for row in run.history]
    [2.0, 4.0]
    """
    if not stages:
        raise InvalidArgumentError(
            "a curriculum without stages",
            got="no stage",
            wanted="at least one task with its recipe",
            todo="pass the stages in order, the task to learn last",
        )
    for stage in stages:
        check_fit(stage.task, spec)
    run: TrainingRun | None = None
    for number, stage in enumerate(stages, 1):
        place = None if folder is None else Path(folder) / f"stage-{number}"
        before = [] if run is None else run.history
        start = None if run is None else parameters(run.model)
        run = train(stage.task, spec, stage.recipe, folder=place, progress=progress, start=start)
        done = before[-1]["step"] if before else 0.0
        later = [{**row, "step": done + row["step"]} for row in run.history]
        run = replace(run, history=[*before, *later])
    assert run is not None
    return run
