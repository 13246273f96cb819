"""Block-list tasks and the registry of their names (imir.md section 1)."""

from __future__ import annotations

from typing import Any

from imir_detect.errors import UnknownNameError
from imir_detect.tasks.base import AXES, IGNORE, Axis, Batch, Ceiling, Task, accuracy, measure
from imir_detect.tasks.recall import AssociativeRecall

REGISTRY: dict[str, type[Any]] = {
    "recall": AssociativeRecall,
}


def make_task(name: str, **knobs: Any) -> Task:
    """The task registered under `name`, with the given knobs.

    >>> make_task("recall", n_blocks=4).length
    9
    """
    if name not in REGISTRY:
        raise UnknownNameError(
            "no such task",
            got=repr(name),
            wanted=f"one of {', '.join(sorted(REGISTRY))}",
            todo="pass a registered name, or a task object of your own",
        )
    return REGISTRY[name](**knobs)


__all__ = [
    "AXES",
    "IGNORE",
    "REGISTRY",
    "AssociativeRecall",
    "Axis",
    "Batch",
    "Ceiling",
    "Task",
    "accuracy",
    "make_task",
    "measure",
]
