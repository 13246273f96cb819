"""Refusals by name: a theorem is not evaluated on a task that it does not speak about."""

from __future__ import annotations

from typing import Any

from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks.base import Task
from imir_detect.tasks.recall import AssociativeRecall


def require(theorem: str, task: Task, **wanted: Any) -> AssociativeRecall:
    """`task` if it is associative recall with the given knobs; an error that names what is not.

    >>> require("theorem 2", AssociativeRecall(), offsets="consecutive").n_blocks
    8
    """
    if not isinstance(task, AssociativeRecall):
        raise InvalidArgumentError(
            f"{theorem} is stated for associative recall",
            got=task.name,
            wanted="the task 'recall'",
            todo="use make_task('recall', ...)",
        )
    wrong = {k: getattr(task, k) for k, v in wanted.items() if getattr(task, k) != v}
    if wrong:
        raise InvalidArgumentError(
            f"{theorem} does not hold for this task",
            got=", ".join(f"{k}={v!r}" for k, v in wrong.items()),
            wanted=", ".join(f"{k}={wanted[k]!r}" for k in wrong),
            todo="change these knobs of the task",
        )
    return task
