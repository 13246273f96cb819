"""The input gate of `detect_circuits`: model and arguments, checked together and told together.

Everything that a caller passes is looked at before anything is computed. What is wrong is raised as
one error that lists every problem, each with what was got, what is wanted and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import Int
from imir_detect.arguments import check_seed, shown, whole
from imir_detect.circuits.relation import Relation
from imir_detect.errors import (
    ImirError,
    InvalidArgumentError,
    UnsupportedModelError,
    collecting,
    raise_all,
)
from imir_detect.given_relation import checked_pairs, relation_of
from imir_detect.tasks import Batch, Task, make_task
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.read import read_weights

LONGEST_CONTEXT = 64
SHORTEST_CONTEXT = 3  # a token, what follows it, and the token again


@dataclass(frozen=True)
class Question:
    """The caller's arguments, resolved and checked against the model."""

    weights: ModelWeights
    task: Task | None
    relation: Relation | None
    vocabulary: Int[Tensor, " vocab"]
    context: int
    seed: int


def admit(
    model: Any, *, task: Any, relation: Any, context: Any, verify: Any, seed: Any
) -> Question:
    """The model's weights and the arguments, resolved. Raises every problem at once."""
    problems: list[ImirError] = []
    weights: ModelWeights | None = None
    asked: Task | None = None
    number = 0
    with collecting(problems):
        weights = read_weights(model)
    with collecting(problems):
        _check_verify(verify, model)
    with collecting(problems):
        number = check_seed(seed)
    with collecting(problems):
        asked = resolve_task(task)
    if weights is None:  # what can be said of arguments without it
        with collecting(problems):
            _context(context, None, None, LONGEST_CONTEXT)
        with collecting(problems):
            checked_pairs(relation, None)
        raise_all(problems)
        raise AssertionError("a model that was not read is a problem")
    with collecting(problems):
        _check_size(weights)
    with collecting(problems):
        chosen, asked = asked, None  # what a task that does not fit implies is no second problem
        asked = _fitting_task(chosen, weights, model)
    size = weights.vocab_size if asked is None else asked.vocab_size
    known, places = None, 0
    with collecting(problems):
        known = relation_of(relation, asked, weights.vocab_size)
    with collecting(problems):
        places = _context(context, asked, weights.n_ctx, size)
    raise_all(problems)
    return Question(weights, asked, known, torch.arange(size), places, number)


# -- one check each -------------------------------------------------------------------------------


def _check_verify(verify: Any, model: Any) -> None:
    if verify is not None and (not isinstance(verify, str) or verify != "ablate"):
        raise InvalidArgumentError(
            "no such verification", got=shown(verify), wanted='None or "ablate"', todo="use one"
        )
    if verify is not None and isinstance(model, ModelWeights):
        raise InvalidArgumentError(
            "ablation needs a model that runs",
            got="ModelWeights",
            wanted="a TransformerBridge",
            todo="pass the model itself, or leave verify out",
        )


def _check_size(weights: ModelWeights) -> None:
    if min(weights.n_ctx, weights.vocab_size) < 2:
        raise UnsupportedModelError(
            "a model of one position or one token attends to nothing",
            got=f"{weights.n_ctx} positions and {weights.vocab_size} tokens",
            wanted="at least 2 of each",
            todo="read single weights with read_weights instead",
        )


def resolve_task(task: Any) -> Task | None:
    """A Task from a registered name, or from an object that meets the contract."""
    if task is None:
        return None
    if isinstance(task, str):
        return make_task(task)
    wrong = _broken_contract(task)
    if wrong:
        raise InvalidArgumentError(
            "this is no task",
            got=wrong,
            wanted="a registered name such as 'recall', or an object that meets tasks.Task",
            todo="see `imir-detect tasks`, or make_task(name, **knobs)",
        )
    return task


def _broken_contract(task: Any) -> str:
    """How an object fails the contract of a task, in words; empty where it does not."""
    if isinstance(task, type):
        return f"the class {task.__name__}, not an instance of it"
    if not isinstance(task, Task):
        return f"{shown(task)}, a {type(task).__name__}"
    for name in ("vocab_size", "length", "n_positions", "competitors"):
        number = whole(getattr(task, name))
        if number is None or number < 1:
            return f"{name}={shown(getattr(task, name))}, no whole number above 0"
    return ""


def _fitting_task(task: Task | None, weights: ModelWeights, model: Any) -> Task | None:
    """The task, whose own batch is one that the model can be run on."""
    if task is None:
        return None
    if task.vocab_size > weights.vocab_size or task.n_positions > weights.n_ctx:
        raise InvalidArgumentError(
            "the task does not fit the model",
            got=f"{task.vocab_size} tokens and {task.n_positions} positions",
            wanted=f"at most {weights.vocab_size} tokens and {weights.n_ctx} positions",
            todo="give the task the knobs that the model was trained with",
        )
    try:
        batch: Any = task.sample(2, generator=torch.Generator().manual_seed(0))
    except ImirError:
        raise
    except Exception as error:  # the task's own code
        raise InvalidArgumentError(
            "the task gives no sequences",
            got=f"{type(error).__name__}: {error}",
            wanted="a Batch of 2 sequences from task.sample(2, generator=...)",
            todo="mend the task",
        ) from error
    wrong = _odd_batch(batch, task)
    if wrong:
        raise InvalidArgumentError(
            "the task's sequences are not what it says of itself",
            got=wrong,
            wanted=f"whole numbers below {task.vocab_size}, {task.length} of them a sequence",
            todo="mend the task",
        )
    if batch.positions is not None and isinstance(model, ModelWeights):
        raise InvalidArgumentError(
            "bare weights are run on consecutive positions only",
            got="a task with random offsets",
            todo="pass the model itself, or a task with offsets='consecutive'",
        )
    return task


def _odd_batch(batch: Any, task: Task) -> str:
    if not isinstance(batch, Batch):
        return f"a {type(batch).__name__}"
    tokens = batch.tokens
    if tokens.shape != (2, task.length):
        return f"tokens of shape {tuple(tokens.shape)}"
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        return f"tokens of {tokens.dtype}"
    if int(tokens.min()) < 0 or int(tokens.max()) >= task.vocab_size:
        return f"tokens from {int(tokens.min())} to {int(tokens.max())}"
    if int(batch.targets.max()) >= task.vocab_size:
        return f"targets up to {int(batch.targets.max())}"
    return ""


def _context(context: Any, task: Task | None, n_ctx: int | None, vocabulary: int) -> int:
    if context is None:
        longest = LONGEST_CONTEXT if task is None else max(task.competitors, SHORTEST_CONTEXT)
        return min(longest, n_ctx or longest, vocabulary)
    number = whole(context)
    if number is None or number < SHORTEST_CONTEXT or (n_ctx is not None and number > n_ctx):
        range_ = f"of {SHORTEST_CONTEXT} or more"
        range_ = range_ if n_ctx is None else f"in {SHORTEST_CONTEXT} .. {n_ctx}"
        raise InvalidArgumentError(
            "this context does not fit the model",
            got=f"context={shown(context)}",
            wanted=f"a whole number {range_}",
            todo="leave context out for the default",
        )
    return min(number, vocabulary)
