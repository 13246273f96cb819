"""What an entry of the zoo's grid is: a task, a shape, a recipe, and the stack it trains in."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from imir_detect.tasks import Task, make_task
from imir_detect.training.loop import Recipe
from imir_detect.training.stack import Member
from imir_detect.weights.native import ModelSpec

Split = Literal["training", "development", "held-out", "fresh"]
SPLITS: tuple[Split, ...] = ("training", "development", "held-out", "fresh")
# Tasks that ask at every place: they train in stacks of their own.
CONTROLS = ("copy_last", "offset_copy", "unigram", "sorting", "majority", "periodic")


@dataclass(frozen=True)
class Architecture:
    """A shape and how its weights are laid out; `blocks` and `vocabulary` size its tasks."""

    name: str
    split: Split
    shape: dict[str, Any]
    tied: bool = False
    sinusoidal: bool = False
    blocks: int = 6
    vocabulary: int = 40
    share: float = 1.0  # of the usual number of models
    steps: int = 2000


@dataclass(frozen=True)
class Entry:
    """One model to be: its name, split, task, shape and recipe."""

    name: str
    split: Split
    task: str
    knobs: dict[str, Any]
    architecture: Architecture
    recipe: Recipe
    aim: str

    def make(self) -> tuple[Task, ModelSpec]:
        """The task and the model's specification."""
        task = make_task(self.task, **self.knobs)
        shape = self.architecture.shape
        return task, ModelSpec(task.vocab_size, task.n_positions, **shape)

    def member(self) -> Member:
        """The entry as a member of a training stack."""
        style = self.architecture
        return Member(self.name, self.make()[0], self.recipe, style.tied, style.sinusoidal)

    @property
    def stack(self) -> tuple[Any, ...]:
        """Entries that agree in this train together."""
        task, spec = self.make()
        how = replace(self.recipe, seed=0, stop_at={})
        style = (self.architecture.tied, self.architecture.sinusoidal)
        asks = "everywhere" if self.task in CONTROLS else "at the end"
        return (str(asdict(spec)), str(asdict(how)), style, task.length, asks)


@dataclass(frozen=True)
class Kind:
    """Models of one task: what behaviour they aim at, how many an architecture gets."""

    aim: str
    split: Split
    task: str
    knobs: dict[str, Any]
    count: int
    stop_at: dict[str, float] = field(default_factory=dict)
    deep: bool = True  # needs two layers
    steps: int | None = None
