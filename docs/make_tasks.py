"""Writes docs/tasks.md from the registry: `python docs/make_tasks.py`."""

from __future__ import annotations

import inspect
from pathlib import Path

from imir_detect.tasks import REGISTRY
from imir_detect.tasks.show import Row, knob_rows, show_task, task_rows

PAGE = Path(__file__).parent / "tasks.md"

HEAD = """# The tasks

Written by `python docs/make_tasks.py` from the registry; a test fails when it is out of date.

A sequence is a list of blocks and one more that is cut short; the model predicts the token that
completes it. Every task carries its labels: the exact law of the answer where it is closed (and
so the best accuracy and loss), the symmetries that hold and those that do not, R where there is
one, and the circuits that solve it. Controls are tasks whose solution a detector must not call an
in-context circuit.

```python
import torch
from imir_detect.tasks import make_task

task = make_task("k_hop", hops=2, n_blocks=6)
batch = task.sample(128, generator=torch.Generator().manual_seed(0)).to("cpu")
clean, corrupt = task.pairs(16, generator=torch.Generator().manual_seed(1))
law = task.law(batch)  # (questions, vocabulary), rows sum to 1
```

The same seed gives the same data on every platform and version. Draws come from a CPU generator;
`Batch.to(device)` moves a batch.

Knobs have the same names everywhere: `n_blocks` complete blocks, `n_common` and `n_rare` tokens,
`rare_frequency` f_r, `variability` f_v, `burstiness` b (how often the query's block stands in the
context), `zipf`, `present`, `label_noise`, `distractors`, `offsets` (where blocks stand:
"consecutive", "random", "disjoint"), `positions`, `query_never_first`.
"""

TAIL = """## Add a task

1. A frozen dataclass in a file of its own under `imir_detect/tasks/`, from `TaskDefaults` (or
   `BlockTask`, for blocks that may stand at positions of their own). It gives `name`,
   `vocab_size`, `length` (or `block_lengths`), `draw`, `pairs`, `last_law` or `clean_law`,
   `expected_circuits`, and its knob rules in `__post_init__`.
2. One line in the registry of `imir_detect/tasks/__init__.py`.
3. In `tests/conformance`: a literal program in `task_oracles.py`, a tiny setting and a full one in
   `task_cases.py`; then `python tests/conformance/task_golden.py` adds its golden hashes.
4. `python docs/make_tasks.py`.
"""


def table(rows: list[Row]) -> list[str]:
    heads = list(rows[0])
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(row[h] for h in heads) + " |" for row in rows]


def section(name: str) -> list[str]:
    text = inspect.getdoc(REGISTRY[name]) or ""
    described = text.split(">>>")[0].rstrip()
    knobs = ", ".join(f"`{row['knob']}={row['default']}`" for row in knob_rows(name))
    shown = show_task(name, examples=2).split("\n", 2)[2].rsplit("\n\nKnobs:", 1)[0]
    return [f"## {name}", "", described, "", f"Knobs: {knobs}", "", "```text", shown, "```", ""]


def page() -> str:
    parts = [HEAD, *table(task_rows()), ""]
    for name in REGISTRY:
        parts += section(name)
    return "\n".join([*parts, TAIL])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
