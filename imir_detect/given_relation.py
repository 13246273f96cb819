"""R from what a caller passes: a mapping, a tensor or a list, every pair checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from imir_detect.arguments import shown, whole
from imir_detect.circuits.relation import Relation
from imir_detect.errors import InvalidArgumentError, some
from imir_detect.tasks import Task


def relation_of(relation: Any, task: Task | None, vocabulary: int) -> Relation | None:
    """The relation given, or the task's, which may name fewer tokens than the model has."""
    if relation is None and task is not None and task.relation is not None:
        relation = {a: b for a, b in enumerate(task.relation.tolist()) if b != -1}
    if relation is None:
        return None
    found = torch.full((vocabulary,), -1)
    for token, partner in checked_pairs(relation, vocabulary):
        found[token] = partner
    return Relation(found, estimated=False)


def checked_pairs(relation: Any, vocabulary: int | None) -> list[tuple[int, int]]:
    """(token, partner) of a relation, every pair checked; `vocabulary` None: it is not known."""
    if relation is None:
        return []
    listed = relation if isinstance(relation, Mapping) else _partners(relation, vocabulary)
    wrong, pairs = [], []
    for token, partner in listed.items():
        a, b = whole(token), whole(partner)
        if a is None or b is None or min(a, b) < 0 or a == b or max(a, b) >= (vocabulary or 2**62):
            wrong.append(f"{shown(token)} -> {shown(partner)}")
        else:
            pairs.append((a, b))
    if wrong:
        most = "from 0" if vocabulary is None else f"in 0 .. {vocabulary - 1}"
        raise InvalidArgumentError(
            "the relation pairs tokens that the model cannot have",
            got=f"{len(wrong)} of {len(listed)} pairs: {some(wrong, 3)}",
            wanted=f"two different whole numbers {most}",
            todo="use token ids of this model; a token is never its own partner",
        )
    return pairs


def _partners(relation: Any, vocabulary: int | None) -> dict[int, int]:
    """A relation that is no mapping: one partner for every token, -1 for none."""
    try:
        values = torch.as_tensor(relation).detach().cpu()
        said = f"shape {tuple(values.shape)} of {values.dtype}"
        fits = values.ndim == 1 and vocabulary in (None, len(values))
        fits = fits and values.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    except (TypeError, ValueError, RuntimeError):
        fits, said = False, f"{shown(relation)}, a {type(relation).__name__}"
    if not fits:
        raise InvalidArgumentError(
            "this relation does not fit the model",
            got=said,
            wanted=f"whole numbers of shape ({vocabulary or 'vocab'},), -1 for none, or a dict",
            todo="give every token its partner or -1",
        )
    return {token: partner for token, partner in enumerate(values.tolist()) if partner != -1}
