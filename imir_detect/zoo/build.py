"""Train the zoo's models: one stack after the other, each model on disk with its card as it ends.

Weights are stored in half precision, and behaviour is measured on what was stored. A build that is
stopped goes on where it was: a model whose card is there is not trained again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from imir_detect.progress import bar
from imir_detect.tasks import Task
from imir_detect.training.behaviour import measured_label
from imir_detect.training.loop import describe, evaluate
from imir_detect.training.stack import Trained, train_stack
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import CARD_FILE, load_parameters, save_model
from imir_detect.zoo.grid import Entry
from imir_detect.zoo.roles import head_measures

SAMPLES = 4096  # fresh sequences by which behaviour is measured


def build(
    entries: Iterable[Entry], folder: Path | str, *, tell: Callable[[str], None] = print
) -> None:
    """Train what `folder` does not hold yet; `tell` gets one line a model."""
    folder = Path(folder)
    stacks: dict[Any, list[Entry]] = {}
    for entry in entries:
        if not (folder / entry.name / CARD_FILE).exists():
            stacks.setdefault(entry.stack, []).append(entry)
    shown = bar(what="models", total=sum(map(len, stacks.values())))
    for members in stacks.values():
        by_name = {entry.name: entry for entry in members}
        spec = members[0].make()[1]
        for done in train_stack([entry.member() for entry in members], spec):
            card = store(by_name[done.member.name], spec, done, folder)
            shown.clear()  # the line that follows would stand behind the bar
            tell(f"{card['name']}: {card['label']} {card['measured']} {card['steps']:.0f}")
            shown.update()
    shown.close()


def store(entry: Entry, spec: ModelSpec, done: Trained, folder: Path) -> dict[str, Any]:
    """Write a trained model and its card; returns the card."""
    task = done.member.task
    bridge = spec.boot(seed=0)
    load_parameters(bridge, done.tensors)
    home = folder / entry.name
    # Rounding to half precision may cost a model something: measure what will be loaded.
    bridge.half()
    card = {
        "name": entry.name,
        "split": entry.split,
        "aim": entry.aim,
        "architecture": entry.architecture.name,
        "tied": entry.architecture.tied,
        "sinusoidal": entry.architecture.sinusoidal,
        "task": describe(task),
        "recipe": asdict(entry.recipe),
        "steps": done.history[-1]["step"],
        "licence": "MIT",
    }
    bridge.float()
    card |= behaviour(bridge, task)
    save_model(bridge.half(), spec, home, card)
    return card


def behaviour(bridge: Any, task: Task) -> dict[str, Any]:
    """What a model does on fresh data, the label that earns it, and what its heads do."""
    bridge.eval()
    measured = {k: round(v, 4) for k, v in evaluate(bridge, task, n=SAMPLES).items()}
    return {
        "measured": measured,
        "label": measured_label(measured),
        "heads": head_measures(bridge, task),
    }
