"""Which settings of which task the conformance suite runs over."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from task_oracles import PROGRAMS, Law, enumerate_program, with_noise

from imir_detect.tasks import REGISTRY, LabelledTask, make_task
from imir_detect.tasks.copying import CopyLast
from imir_detect.tasks.counting import Majority

WORDS = str(Path(__file__).parent / "words.txt")

# A registered task may keep the bare contract and carry no labels; it is tested apart.
LABELLED = [name for name in REGISTRY if isinstance(make_task(name), LabelledTask)]

# Defaults, and settings that take other branches.
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in LABELLED),
    ("recall", {"variability": 0.5, "present": 0.5, "zipf": 1.0, "label_noise": 0.1}),
    ("recall", {"directed": True, "variability": 0.5, "burstiness": 3, "offsets": "disjoint"}),
    ("recall", {"rare_frequency": 1.0, "n_common": 0, "offsets": "random"}),
    ("recall", {"rare_frequency": 0.0, "n_rare": 0, "query_never_first": True}),
    ("ngram", {"block_length": 2, "present": 0.5, "offsets": "random"}),
    ("ngram", {"block_length": 4, "burstiness": 2, "query_never_first": True}),
    ("k_hop", {"hops": 1, "structure": "permutation", "offsets": "disjoint"}),
    ("k_hop", {"hops": 3, "structure": "chain", "n_blocks": 7, "burstiness": 2}),
    ("k_hop", {"hops": 4, "distractors": 3, "n_blocks": 9, "query_never_first": True}),
    ("ioi", {"n_blocks": 1, "offsets": "random"}),
    ("ioi", {"n_blocks": 4, "burstiness": 2, "label_noise": 0.2, "query_never_first": True}),
    ("conditional", {"conditions": 3, "n_blocks": 10, "burstiness": 2, "offsets": "random"}),
    ("inversion", {"structure": "permutation", "burstiness": 2, "offsets": "disjoint"}),
    ("inversion", {"n_blocks": 4, "query_never_first": True}),
    ("automaton", {"states": 6, "symbols": 5, "arcs": 3, "offsets": "random"}),
    ("fragments", {"n_blocks": 12, "depth": 3, "binary": 2}),
    ("fragments", {"n_blocks": 4, "binary": 0}),
    ("text", {"file": WORDS, "window": 5, "repeat": 3, "n_common": 3}),
    ("mixture", {"parts": ("ioi", "majority", "unigram"), "weights": (2, 1, 1), "segments": 3}),
    ("offset_copy", {"offset": 1, "zipf": 1.0, "label_noise": 0.1}),
    ("periodic", {"period": 1}),
]

# Small enough to enumerate; each has a literal program.
TINY: list[tuple[str, dict[str, Any]]] = [
    (
        "recall",
        {"n_blocks": 1, "n_common": 6, "n_rare": 3, "variability": 0.3, "present": 0.6},
    ),
    (
        "recall",
        {"n_blocks": 1, "n_common": 4, "n_rare": 3, "present": 0.5, "label_noise": 0.2},
    ),
    ("recall", {"n_blocks": 2, "n_common": 8, "n_rare": 0, "rare_frequency": 0.0, "zipf": 1.0}),
    (
        "recall",
        {
            "n_blocks": 2,
            "n_common": 8,
            "n_rare": 0,
            "rare_frequency": 0.0,
            "variability": 0.4,
            "directed": True,
        },
    ),
    (
        "recall",
        {
            "n_blocks": 3,
            "n_common": 0,
            "n_rare": 6,
            "rare_frequency": 1.0,
            "burstiness": 2,
            "query_never_first": True,
        },
    ),
    ("recall", {"n_blocks": 2, "n_common": 8, "n_rare": 4, "rare_frequency": 0.25, "present": 0.5}),
    ("ngram", {"block_length": 3, "n_blocks": 2, "n_rare": 6, "stems": 2}),
    ("ngram", {"block_length": 2, "n_blocks": 1, "n_rare": 6, "present": 0.5}),
    ("ngram", {"block_length": 3, "n_blocks": 3, "n_rare": 5, "stems": 2, "burstiness": 2}),
    ("k_hop", {"hops": 2, "n_blocks": 3, "n_rare": 6}),
    ("k_hop", {"hops": 2, "n_blocks": 3, "n_rare": 4, "structure": "permutation", "burstiness": 2}),
    ("k_hop", {"hops": 1, "n_blocks": 2, "n_rare": 6, "structure": "chain"}),
    ("k_hop", {"hops": 1, "n_blocks": 4, "n_rare": 8, "distractors": 2, "query_never_first": True}),
    ("ioi", {"n_blocks": 2, "n_rare": 5}),
    ("ioi", {"n_blocks": 3, "n_rare": 4, "burstiness": 2, "query_never_first": True}),
    ("conditional", {"conditions": 2, "n_blocks": 3, "n_rare": 4, "burstiness": 2}),
    ("conditional", {"conditions": 3, "n_blocks": 3, "n_rare": 4, "query_never_first": True}),
    ("inversion", {"n_blocks": 3, "n_rare": 5}),
    ("inversion", {"n_blocks": 4, "n_rare": 4, "query_never_first": True}),
    ("inversion", {"n_blocks": 3, "n_rare": 4, "structure": "permutation"}),
    (
        "automaton",
        {"states": 2, "symbols": 2, "arcs": 1, "n_rare": 3, "n_blocks": 1, "block_length": 4},
    ),
    (
        "automaton",
        {"states": 2, "symbols": 3, "arcs": 2, "n_rare": 3, "n_blocks": 1, "block_length": 3},
    ),
    ("fragments", {"n_blocks": 2, "binary": 1, "n_rare": 5}),
    ("fragments", {"n_blocks": 2, "depth": 2, "binary": 1, "n_rare": 5}),
    ("fragments", {"n_blocks": 2, "binary": 0, "n_rare": 5}),
    ("text", {"file": WORDS, "window": 5, "repeat": 3, "n_common": 3}),
    ("text", {"file": WORDS, "window": 6, "repeat": 4}),
    (
        "mixture",
        {
            "parts": (CopyLast(n_tokens=2, n_common=2), Majority(n_tokens=3, n_common=3)),
            "weights": (1.0, 3.0),
            "segments": 2,
        },
    ),
    ("copy_last", {"n_tokens": 3, "n_common": 3}),
    ("offset_copy", {"n_tokens": 4, "n_common": 3, "offset": 2, "zipf": 1.5}),
    ("unigram", {"n_tokens": 4, "n_common": 3, "concentration": 0.5}),
    ("majority", {"n_tokens": 5, "n_common": 3, "label_noise": 0.3}),
    ("sorting", {"n_items": 3, "n_common": 3}),
    ("periodic", {"n_tokens": 5, "n_common": 2, "period": 3}),
]


def label(case: tuple[str, dict[str, Any]]) -> str:
    name, knobs = case
    return f"{name}({', '.join(f'{k}={v}' for k, v in knobs.items() if k != 'file')})"


def labelled(case: tuple[str, dict[str, Any]]) -> LabelledTask:
    task = make_task(case[0], **case[1])
    assert isinstance(task, LabelledTask)
    return task


@cache
def exact(index: int) -> Law:
    """The enumerated law of TINY[index]."""
    task = labelled(TINY[index])
    return with_noise(task, enumerate_program(PROGRAMS[task.name], task))
