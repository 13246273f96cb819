"""`detect_circuits`: weights -> frame -> coordinates -> circuits -> report, one call a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import Int
from imir_detect.behaviour import ablation_check, task_behaviour
from imir_detect.circuits.heads import Head
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import Relation
from imir_detect.circuits.verdict import label_probabilities
from imir_detect.coordinates.profiles import Profile
from imir_detect.coordinates.table import Coordinate
from imir_detect.errors import InvalidArgumentError
from imir_detect.notes import meta_of, warnings_of
from imir_detect.result import Report, Table
from imir_detect.routes import deep_route, exact_route, too_deep
from imir_detect.tasks import Task, make_task
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.read import read_weights

LONGEST_CONTEXT = 64


def detect_circuits(
    model: Any,
    *,
    task: str | Task | None = None,
    relation: dict[int, int] | Int[Tensor, " vocab"] | None = None,
    context: int | None = None,
    verify: str | None = None,
    seed: int = 0,
) -> Report:
    """Which circuits a transformer holds, read from its weights.

    The weights' paths are summed on random contexts (no data, no task): a circuit's strength is
    the share of these on which it gives the right answer by itself and is not overruled by the
    rest of the model. See `Report` for what comes back.

    - model: a `TransformerBridge`, `HookedTransformer` or `ModelWeights`; it comes back untouched.
    - task: a registered name or a Task. Gives R, the vocabulary in use and the context length, and
      is run into `report.measured`. It never changes how label and probabilities are computed.
    - relation: {token: partner}, or a tensor (vocab,) with -1 for none; overrides the task's.
      Without either, R is estimated from the weights.
    - context: positions that compete for attention, 3 or more; default min(n_ctx, 64), and never
      more than the vocabulary in use, whose tokens must differ within a context.
    - verify: None, or "ablate": mean-ablate each working circuit's heads in the model itself and
      report the drop beside that of as many random heads.
    - seed: of every draw.

    Raises an ImirError that names what does not fit.

    >>> from imir_detect import detect_circuits, shipped_model
    >>> detect_circuits(shipped_model("icl")).label
    'icl'
    """
    weights = read_weights(model)
    question = _ask(weights, task, relation, context, verify)
    probe = Probe(weights, question.vocabulary, question.context, seed=seed)
    route = deep_route if too_deep(weights, probe.context) else exact_route
    found = route(model, probe, question.relation)
    measured = task_behaviour(model, weights, question.task, seed=seed)
    if verify == "ablate":
        measured["ablation"] = ablation_check(model, found.probe, found.circuits, found.relation)
    return Report(
        probabilities=label_probabilities(found.circuits),
        circuits=found.circuits,
        heads=Table.of(Head, found.heads),
        coordinates=Table.of(Coordinate, found.coordinates),
        profiles=Table.of(Profile, found.profiles),
        measured=measured,
        limits=found.limits,
        warnings=warnings_of(probe, found.relation),
        meta={
            **meta_of(probe, found.relation),
            "route": found.route,
            "latent_graph": None if found.graph is None else found.graph.to_dict(),
        },
    )


# -- arguments ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Question:
    """The caller's arguments, resolved and checked against the model."""

    task: Task | None
    relation: Relation | None
    vocabulary: Int[Tensor, " vocab"]
    context: int


def _ask(
    weights: ModelWeights, task: Any, relation: Any, context: int | None, verify: str | None
) -> _Question:
    if verify not in (None, "ablate"):
        raise InvalidArgumentError(
            "no such verification", got=repr(verify), wanted='None or "ablate"', todo="use one"
        )
    if isinstance(task, str):
        task = make_task(task)
    size = weights.vocab_size
    if task is not None:
        if task.vocab_size > size or task.n_positions > weights.n_ctx:
            raise InvalidArgumentError(
                "the task does not fit the model",
                got=f"{task.vocab_size} tokens and {task.n_positions} positions",
                wanted=f"at most {size} tokens and {weights.n_ctx} positions",
                todo="give the task the knobs that the model was trained with",
            )
        size = task.vocab_size
        relation = task.relation if relation is None else relation
        context = task.competitors if context is None else context
    return _Question(
        task=task,
        relation=None if relation is None else _relation(relation, weights.vocab_size),
        vocabulary=torch.arange(size),
        context=_context(context, weights.n_ctx, size),
    )


def _context(context: int | None, n_ctx: int, vocabulary: int) -> int:
    if context is None:
        return min(n_ctx, LONGEST_CONTEXT, vocabulary)
    if not isinstance(context, int) or not 3 <= context <= n_ctx:
        raise InvalidArgumentError(
            "this context does not fit the model",
            got=f"context={context!r}",
            wanted=f"a whole number in 3 .. {n_ctx}",
            todo="leave context out for the default",
        )
    return min(context, vocabulary)


def _relation(relation: Any, vocabulary: int) -> Relation:
    """A relation from {token: partner} or a tensor; every token must be the model's."""
    partner = torch.full((vocabulary,), -1)
    if isinstance(relation, dict):
        pairs = list(relation.items())
    else:
        values = torch.as_tensor(relation)
        if values.ndim != 1 or len(values) > vocabulary or values.is_floating_point():
            raise InvalidArgumentError(
                "this relation does not fit the model",
                got=f"shape {tuple(values.shape)} of {values.dtype}",
                wanted=f"whole numbers of shape ({vocabulary},), -1 for none, or a dict",
                todo="give every token its partner or -1",
            )
        pairs = [(i, int(p)) for i, p in enumerate(values.tolist()) if p != -1]
    wrong = [
        (a, b)
        for a, b in pairs
        if not (isinstance(a, int) and isinstance(b, int))
        or not (0 <= a < vocabulary and 0 <= b < vocabulary)
        or a == b
    ]
    if wrong:
        raise InvalidArgumentError(
            "the relation pairs tokens that the model cannot have",
            got=f"{wrong[:3]}",
            wanted=f"two different whole numbers in 0 .. {vocabulary - 1}",
            todo="use token ids of this model; a token is never its own partner",
        )
    for a, b in pairs:
        partner[a] = b
    return Relation(partner, estimated=False)
