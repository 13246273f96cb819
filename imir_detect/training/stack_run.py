"""Where a stack in training stands, and its checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from imir_detect.training.checkpoint import Checkpoint, readable
from imir_detect.training.loop import describe
from imir_detect.training.stacked_forward import Stacked
from imir_detect.weights.native import ModelSpec

if TYPE_CHECKING:
    from imir_detect.training.stack import Member

Histories = dict[str, list[dict[str, float]]]


@dataclass
class StackRun:
    """A stack after `step` steps: the members left, their rows of parameters and of Adam's moments,
    every member's history, and the generators' states when the data now in use was drawn."""

    left: list[Member]
    stack: Stacked
    moments: list[Stacked]
    histories: Histories
    drawn: dict[str, Tensor]
    step: int = 0

    def keep(self, rows: list[int]) -> None:
        """Only these members go on."""
        self.left = [self.left[i] for i in rows]
        self.stack = {k: p[rows].detach().requires_grad_() for k, p in self.stack.items()}
        self.moments = [{k: v[rows] for k, v in moment.items()} for moment in self.moments]

    def write(self, file: Path, members: Sequence[Member], spec: ModelSpec) -> None:
        """Replace the checkpoint of the stack that `members` began."""
        tensors = {f"parameter/{k}": p for k, p in self.stack.items()}
        for number, moment in enumerate(self.moments):
            tensors |= {f"moment-{number}/{k}": v for k, v in moment.items()}
        tensors |= {f"drawn/{m.name}": self.drawn[m.name] for m in self.left}
        state = {
            "step": self.step,
            "left": [m.name for m in self.left],
            "histories": _strict(self.histories),
        }
        Checkpoint(_identity(members, spec), state, tensors).write(file)

    @classmethod
    def read(cls, file: Path, members: Sequence[Member], spec: ModelSpec) -> StackRun:
        """The run as it was written; refused where these members, as they are, did not begin it."""
        found = Checkpoint.read(file, _identity(members, spec))
        by_name = {m.name: m for m in members}

        def part(name: str) -> Stacked:
            stem = f"{name}/"
            return {k.removeprefix(stem): t for k, t in found.tensors.items() if k.startswith(stem)}

        with readable(file):
            return cls(
                [by_name[name] for name in found.state["left"]],
                {k: p.requires_grad_() for k, p in part("parameter").items()},
                [part("moment-0"), part("moment-1")],
                _loose(found.state["histories"]),
                part("drawn"),
                found.state["step"],
            )


def members_begun(file: Path) -> tuple[str, ...]:
    """Names of the members of the stack whose checkpoint this is; none where there is no file."""
    return tuple(Checkpoint.read(file).identity["members"]) if file.exists() else ()


def _identity(members: Sequence[Member], spec: ModelSpec) -> dict[str, Any]:
    each = {
        m.name: {
            "task": describe(m.task),
            "recipe": asdict(m.recipe),
            "tied": m.tied,
            "sinusoidal": m.sinusoidal,
        }
        for m in members
    }
    return {"members": each, "spec": asdict(spec)}


def _strict(histories: Histories) -> dict[str, list[dict[str, float | None]]]:
    """Strict JSON has no NaN, and one member may diverge while the others train on."""
    return {
        name: [{k: v if math.isfinite(v) else None for k, v in row.items()} for row in rows]
        for name, rows in histories.items()
    }


def _loose(histories: dict[str, list[dict[str, float | None]]]) -> Histories:
    return {
        name: [{k: math.nan if v is None else v for k, v in row.items()} for row in rows]
        for name, rows in histories.items()
    }
