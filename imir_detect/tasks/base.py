"""What a task is: the contract that every task keeps, and that training and reports rely on.

A task is a frozen dataclass of its knobs. It samples batches from a seeded generator, states its
relation R and vocabulary, gives clean/corrupt pairs, knows its ceiling where that is closed, and
draws the two probes by which a model is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.errors import InvalidArgumentError

IGNORE = -100  # target where nothing is asked; the value torch's cross-entropy skips
Axis = Literal["icl", "iwl"]
AXES: tuple[Axis, ...] = ("icl", "iwl")
LogitsFn = Callable[[Int[Tensor, "batch pos"], Int[Tensor, "batch pos"] | None], Tensor]


@dataclass(frozen=True)
class Batch:
    """Sequences with what is asked of them.

    - `tokens` (batch, pos).
    - `targets` (batch, pos): the token to predict after each position, `IGNORE` where none is.
    - `answer_position` (batch, pos): where in the sequence the answer stands, -1 where it does
      not (or nothing is asked). Of several places, the last.
    - `positions` (batch, pos) or None: position indices; None means 0, 1, 2, ...
    """

    tokens: Int[Tensor, "batch pos"]
    targets: Int[Tensor, "batch pos"]
    answer_position: Int[Tensor, "batch pos"]
    positions: Int[Tensor, "batch pos"] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value.shape != self.tokens.shape:
                raise InvalidArgumentError(
                    f"{field.name} of a batch must match its tokens",
                    got=str(tuple(value.shape)),
                    wanted=str(tuple(self.tokens.shape)),
                    todo="give every field the shape (batch, pos)",
                )

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def __getitem__(self, rows: slice) -> Batch:
        """The sequences of a slice."""
        return self._map(lambda field: field[rows])

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        return self._map(lambda field: field.to(device))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        positions = None if self.positions is None else change(self.positions)
        kept = (change(self.tokens), change(self.targets), change(self.answer_position))
        return Batch(*kept, positions)


@dataclass(frozen=True)
class Ceiling:
    """The best any predictor can do, in accuracy and in mean loss (nats); None: not closed.

    `context`: sees the sequence and does not know R. `weights`: knows R and sees the query alone.
    `both`: sees the sequence and knows R.
    """

    context_accuracy: float | None
    context_loss: float | None
    weights_accuracy: float | None
    weights_loss: float | None
    both_accuracy: float | None
    both_loss: float | None


@runtime_checkable
class Task(Protocol):
    """The contract. `name` is the registered name; the rest is documented on each task."""

    @property
    def name(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def length(self) -> int:
        """Tokens of one sequence."""
        ...

    @property
    def n_positions(self) -> int:
        """Position indices a model needs (its n_ctx); more than `length` with random offsets."""
        ...

    @property
    def relation(self) -> Int[Tensor, " vocab"] | None:
        """R as a tensor of partners, -1 where a token has none; None for tasks without R."""
        ...

    @property
    def competitors(self) -> int:
        """Positions that compete for the attention of the query."""
        ...

    def sample(self, n: int, *, generator: torch.Generator) -> Batch: ...

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """Clean and corrupt batches of equal shape that differ in what the answer is."""
        ...

    def probe(self, axis: Axis, n: int, *, generator: torch.Generator) -> Batch | None:
        """`icl`: fresh associations, answer in context; `iwl`: R, answer absent; None: no axis."""
        ...

    def ceiling(self) -> Ceiling: ...


def accuracy(logits: Float[Tensor, "batch pos vocab"], batch: Batch) -> float:
    """Share of asked positions where the largest logit is the target's. Ties count as wrong."""
    asked = batch.targets != IGNORE
    rows, targets = logits[asked], batch.targets[asked]
    best = rows.gather(-1, targets[:, None])
    others = rows.scatter(-1, targets[:, None], float("-inf")).max(-1, keepdim=True).values
    return float((best > others).double().mean())


@torch.no_grad()
def measure(task: Task, logits: LogitsFn, *, n: int = 2048, seed: int = 0) -> dict[str, float]:
    """Behaviour of a model on a task: {"accuracy", "icl_accuracy", "iwl_accuracy"}, in [0, 1].

    `logits(tokens, positions)` gives (batch, pos, vocab). An axis that the task lacks is left
    out. `n` fresh sequences each; the standard error is at most 0.5 / sqrt(n). Run in chunks of
    256 sequences, so that memory does not grow with n.
    """
    generator = torch.Generator().manual_seed(seed)
    batches = {"accuracy": task.sample(n, generator=generator)}
    for axis in AXES:
        probe = task.probe(axis, n, generator=generator)
        if probe is not None:
            batches[f"{axis}_accuracy"] = probe
    return {key: _accuracy_in_chunks(batch, logits) for key, batch in batches.items()}


def _accuracy_in_chunks(batch: Batch, logits: LogitsFn, chunk: int = 256) -> float:
    right = 0.0
    for start in range(0, len(batch), chunk):
        part = batch[start : start + chunk]
        right += accuracy(logits(part.tokens, part.positions), part) * len(part)
    return right / len(batch)
