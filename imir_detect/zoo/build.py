"""Train the zoo's models: one stack after the other, each model on disk with its card as it ends.

Weights are stored in half precision, and behaviour is measured on what was stored. A build that is
killed goes on where it was: a model whose card is there is not trained again, and the stack at work
takes up its checkpoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from imir_detect.files import hold
from imir_detect.progress import bar
from imir_detect.tasks import Task
from imir_detect.training.behaviour import measured_label
from imir_detect.training.loop import describe, evaluate
from imir_detect.training.saved import refuse_other_model
from imir_detect.training.stack import Trained, train_stack
from imir_detect.training.stack_run import members_begun
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import CARD_FILE, load_parameters, read_card, save_model
from imir_detect.zoo.entry import Entry
from imir_detect.zoo.roles import head_measures

SAMPLES = 4096  # fresh sequences by which behaviour is measured


def build(
    entries: Iterable[Entry], folder: Path | str, *, tell: Callable[[str], None] = print
) -> None:
    """Train what `folder` does not hold yet; `tell` gets one line a model."""
    folder = Path(folder)
    with hold(folder):
        stacks: dict[Any, list[Entry]] = {}
        for entry in entries:
            stacks.setdefault(entry.stack, []).append(entry)
        shown = bar(what="models", total=sum(map(len, stacks.values())))
        for key, group in stacks.items():
            digest = hashlib.sha256(repr(key).encode()).hexdigest()[:12]
            file = folder / f".stack-{digest}.safetensors"
            begun = members_begun(file)  # goes on in the same company, to the same bits
            stored = {e.name for e in group if _stored(e, folder)}
            shown.update(len(stored))
            missing = [e for e in group if e.name not in {*stored, *begun}]
            for members in ([e for e in group if e.name in begun], missing):
                if members:
                    _train(members, folder, file, tell, shown)
        shown.close()


def _train(
    members: list[Entry], folder: Path, file: Path, tell: Callable[[str], None], shown: Any
) -> None:
    by_name = {entry.name: entry for entry in members}
    spec = members[0].make()[1]
    for done in train_stack([entry.member() for entry in members], spec, file=file):
        entry = by_name[done.member.name]
        if not _stored(entry, folder):
            card = store(entry, spec, done, folder)
            shown.clear()  # the line that follows would stand behind the bar
            tell(f"{card['name']}: {card['label']} {card['measured']} {card['steps']:.0f}")
            shown.update()


def _stored(entry: Entry, folder: Path) -> bool:
    """Whether the model is there; one of that name that was made otherwise is refused."""
    home = folder / entry.name
    if not (home / CARD_FILE).exists():
        return False
    refuse_other_model(home, read_card(home), {**_plan(entry), "spec": asdict(entry.make()[1])})
    return True


def _plan(entry: Entry) -> dict[str, Any]:
    """What a card says of how a model was made."""
    return {
        "name": entry.name,
        "split": entry.split,
        "aim": entry.aim,
        "architecture": entry.architecture.name,
        "tied": entry.architecture.tied,
        "sinusoidal": entry.architecture.sinusoidal,
        "task": describe(entry.make()[0]),
        "recipe": asdict(entry.recipe),
    }


def store(entry: Entry, spec: ModelSpec, done: Trained, folder: Path) -> dict[str, Any]:
    """Write a trained model and its card; returns the card."""
    task = done.member.task
    bridge = spec.boot(seed=0)
    load_parameters(bridge, done.tensors)
    home = folder / entry.name
    # Rounding to half precision may cost a model something: measure what will be loaded.
    bridge.half()
    card = {
        **_plan(entry),
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
