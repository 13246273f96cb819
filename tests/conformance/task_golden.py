"""Golden hashes: the same seed gives the same data on every platform and version.

`python tests/conformance/task_golden.py` writes golden.json anew; do that only when the data of a
task is meant to change, and say so in the change log.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import torch
from task_cases import SETTINGS, label, labelled

from imir_detect.tasks import AXES, Batch, LabelledTask

FILE = Path(__file__).parent / "golden.json"


def digest(task: LabelledTask) -> str:
    """Hash of a sample, pairs and probes of a task; integers as little-endian 64-bit."""
    generator = torch.Generator().manual_seed(20_260_711)
    drawn: list[Batch | None] = [task.sample(257, generator=generator)]
    drawn += task.pairs(64, generator=generator)
    drawn += [task.probe(axis, 64, generator=generator) for axis in AXES]
    state = hashlib.sha256()
    for batch in drawn:
        if batch is None:
            state.update(b"none")
            continue
        for field in (batch.tokens, batch.targets, batch.answer_position, batch.positions):
            numbers = [] if field is None else field.flatten().tolist()
            state.update(struct.pack(f"<q{len(numbers)}q", len(numbers), *numbers))
    return state.hexdigest()[:32]


def digests() -> dict[str, str]:
    return {label(case): digest(labelled(case)) for case in SETTINGS}


if __name__ == "__main__":
    FILE.write_text(json.dumps(digests(), indent=1) + "\n", encoding="utf-8")
