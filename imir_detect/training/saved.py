"""Train once into a folder: killed, it goes on; finished, it is not trained again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from imir_detect.files import discard, hold, refuse_other
from imir_detect.tasks.base import Task
from imir_detect.training.behaviour import measured_label
from imir_detect.training.loop import CHECKPOINT_FILE, Recipe, describe, evaluate, train
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import CARD_FILE, read_card, save_model


def train_and_save(
    task: Task,
    spec: ModelSpec,
    recipe: Recipe,
    folder: Path,
    *,
    progress: bool = True,
    wait: bool = False,
    **facts: Any,
) -> dict[str, Any]:
    """Train a model and save it in `folder` with a card of `facts` and its measured behaviour;
    returns the card. The checkpoint lies in FOLDER/training until the card is there.

    A folder that holds another model, finished or in training, is refused by what differs. With
    `wait`, waits for another run in this folder to end, and takes what it saved.
    """
    with hold(folder, wait=wait):
        plan = {"task": describe(task), "recipe": asdict(recipe), "spec": asdict(spec)}
        if (folder / CARD_FILE).exists():
            card = read_card(folder)
            refuse_other_model(folder, card, plan)
            return card
        run = train(task, spec, recipe, folder=folder / "training", progress=progress)
        measured = evaluate(run.model, task)
        label = measured_label(measured)
        save_model(run.model, spec, folder, {**facts, **plan, "label": label, "measured": measured})
        discard(folder / "training" / CHECKPOINT_FILE)
        with suppress(OSError):
            (folder / "training").rmdir()
        return read_card(folder)


def refuse_other_model(folder: Path, card: dict[str, Any], plan: dict[str, Any]) -> None:
    """Raise where the card's model was not made as `plan` says. What a card lacks is newer than it:
    then the plan's task and recipe are believed, and a model's specification is the default."""
    stored = {name: card.get(name, value) for name, value in plan.items()}
    refuse_other(folder, {**stored, "spec": {**asdict(ModelSpec(1, 1)), **card["spec"]}}, plan)
