"""Block-list tasks and the registry of their names."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from imir_detect.errors import InvalidArgumentError, UnknownNameError
from imir_detect.tasks.automaton import AutomatonStrings
from imir_detect.tasks.base import AXES, IGNORE, Axis, Batch, Ceiling, Task, accuracy, measure
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.conditional import ConditionalRetrieval
from imir_detect.tasks.copying import CopyLast, OffsetCopy
from imir_detect.tasks.counting import Majority, UnigramCounting
from imir_detect.tasks.family import LabelledTask
from imir_detect.tasks.fragments import Fragments
from imir_detect.tasks.inversion import PermutationInversion
from imir_detect.tasks.ioi import IndirectObject
from imir_detect.tasks.k_hop import KHop
from imir_detect.tasks.mixture import Mixture
from imir_detect.tasks.ngram import InContextNGram
from imir_detect.tasks.periodic import Periodic
from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.tasks.sorting import Sorting
from imir_detect.tasks.text import RepeatedText

REGISTRY: dict[str, type[Any]] = {
    "recall": AssociativeRecall,
    "ngram": InContextNGram,
    "k_hop": KHop,
    "ioi": IndirectObject,
    "conditional": ConditionalRetrieval,
    "inversion": PermutationInversion,
    "automaton": AutomatonStrings,
    "fragments": Fragments,
    "text": RepeatedText,
    "mixture": Mixture,
    "causal_graph": CausalGraphTask,
    # controls: what solves them must not be called an in-context circuit
    "copy_last": CopyLast,
    "offset_copy": OffsetCopy,
    "unigram": UnigramCounting,
    "majority": Majority,
    "sorting": Sorting,
    "periodic": Periodic,
}


def make_task(name: str, **knobs: Any) -> Task:
    """The task registered under `name`, with the given `knobs`; `imir-detect tasks` lists them.

    Raises UnknownNameError for another name, InvalidArgumentError for knobs that do not fit each
    other.

    >>> make_task("recall", n_blocks=4).length
    9
    """
    if not isinstance(name, str) or name not in REGISTRY:
        raise UnknownNameError(
            "no such task",
            got=repr(name),
            wanted=f"one of {', '.join(sorted(REGISTRY))}",
            todo="pass a registered name, or a task object of your own",
        )
    known = [field.name for field in fields(REGISTRY[name]) if field.init]
    unknown = [knob for knob in knobs if knob not in known]
    if unknown:
        raise InvalidArgumentError(
            f"{name} has no such knobs",
            got=", ".join(unknown),
            wanted=", ".join(known) or "none",
            todo="use those",
        )
    return REGISTRY[name](**knobs)


__all__ = [
    "AXES",
    "IGNORE",
    "REGISTRY",
    "AssociativeRecall",
    "AutomatonStrings",
    "Axis",
    "Batch",
    "CausalGraphTask",
    "Ceiling",
    "ConditionalRetrieval",
    "CopyLast",
    "Fragments",
    "InContextNGram",
    "IndirectObject",
    "KHop",
    "LabelledTask",
    "Majority",
    "Mixture",
    "OffsetCopy",
    "Periodic",
    "PermutationInversion",
    "RepeatedText",
    "Sorting",
    "Task",
    "UnigramCounting",
    "accuracy",
    "make_task",
    "measure",
]
