"""The registry as text: a list of the tasks, and one of them with examples and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch

from imir_detect.tasks import REGISTRY, make_task
from imir_detect.tasks.base import IGNORE, Batch
from imir_detect.tasks.family import LabelledTask

Row = dict[str, str]


def summary(name: str) -> str:
    """The first sentence of a task's description.

    >>> summary("ngram")
    'Blocks of n tokens, then the first n - 1 of one again; the answer is its last.'
    """
    text = " ".join((REGISTRY[name].__doc__ or "").split("\n\n")[0].split())
    return text.split(". ")[0].rstrip(".") + "."


def task_rows() -> list[Row]:
    """One row per registered task, in the registry's order: what `imir-detect tasks` lists."""
    rows = []
    for name in REGISTRY:
        task = make_task(name)
        kinds = "-"
        control = False
        if isinstance(task, LabelledTask):
            kinds = ", ".join(dict.fromkeys(c.kind for c in task.expected_circuits))
            control = task.control
        rows.append(
            {
                "task": name,
                "what": summary(name),
                "tokens": str(task.length),
                "vocabulary": str(task.vocab_size),
                "relation": "no" if task.relation is None else "R",
                "circuits": "(control)" if control else kinds,
            }
        )
    return rows


def task_list() -> str:
    """`task_rows` as a table of plain text."""
    return text_table(task_rows())


def knob_rows(name: str) -> list[Row]:
    """One row per knob of a task, with its default."""
    defaults = make_task(name)
    return [
        {"knob": field.name, "default": repr(getattr(defaults, field.name))}
        for field in fields(defaults)  # type: ignore[arg-type]
    ]


def show_task(task: str | LabelledTask, *, examples: int = 3, seed: int = 0) -> str:
    """What a task is, in plain text: examples, ceiling, symmetries, circuits, knobs.

    `task` is a registered name or a task object; the same seed prints the same examples.
    """
    made: Any = make_task(task) if isinstance(task, str) else task
    parts = [f"{made.name}: {summary(made.name)}", ""]
    parts += ["Examples ([ ] a block, ? the question, -> its answer)"]
    batch = made.sample(examples, generator=torch.Generator().manual_seed(seed))
    parts += [f"  {example(made, batch, row)}" for row in range(examples)]
    parts += ["", "Ceiling", *(f"  {line}" for line in ceiling_lines(made))]
    if isinstance(made, LabelledTask):
        parts += ["", "Symmetries", *(f"  {line}" for line in symmetry_lines(made))]
        parts += ["", "Circuits that solve it (alternatives)"]
        for circuit in made.expected_circuits:
            parts += [f"  {line}" for line in str(circuit).splitlines()]
    knobs = ", ".join(f"{f.name}={getattr(made, f.name)!r}" for f in fields(made))
    return "\n".join([*parts, "", f"Knobs: {knobs}"])


def example(task: Any, batch: Batch, row: int) -> str:
    """One sequence with named tokens, blocks in brackets and the questions' answers.

    >>> from imir_detect.tasks import AssociativeRecall
    >>> task = AssociativeRecall(n_blocks=2, n_rare=4)
    >>> example(task, task.sample(1, generator=torch.Generator().manual_seed(0)), 0)
    '[r2 r1] [b7 a7] [r2 ?] -> r1'
    """
    name = getattr(task, "token_name", str)
    words = [name(token) for token in batch.tokens[row].tolist()]
    targets = batch.targets[row].tolist()
    asked = [place for place, target in enumerate(targets) if target != IGNORE]
    lengths = getattr(task, "block_lengths", None)
    if lengths is not None:
        blocks, start = [], 0
        for length in lengths:
            blocks.append(words[start : start + length])
            start += length
        blocks[-1].append("?")
        line = " ".join(f"[{' '.join(block)}]" for block in blocks)
    else:
        line = f"{' '.join(words)} ?" if asked[-1] == len(words) - 1 else " ".join(words)
    answers = [name(targets[place]) for place in asked]
    if len(asked) == 1:
        return f"{line} -> {answers[0]}"
    return f"{line} -> after places {asked[0]}..{asked[-1]}: {' '.join(answers)}"


def ceiling_lines(task: Any, *, n: int = 256, seed: int = 0) -> list[str]:
    """The closed ceiling, or the exact law's on `n` sequences where none is closed."""
    best = task.ceiling()
    lines = [
        f"{what}: accuracy {accuracy:.4f}, loss {loss:.4f} nats"
        for what, accuracy, loss in (
            ("context, without R", best.context_accuracy, best.context_loss),
            ("R and the query alone", best.weights_accuracy, best.weights_loss),
            ("both", best.both_accuracy, best.both_loss),
        )
        if accuracy is not None and loss is not None
    ]
    if task.relation is None:
        lines = [line.removeprefix("both: ") for line in lines if line.startswith("both")]
    if lines:
        return lines
    few = min(n, 32) if task.name == "automaton" else n
    batch = task.sample(few, generator=torch.Generator().manual_seed(seed))
    law = task.law(batch) if isinstance(task, LabelledTask) else None
    if law is None:
        return ["not closed"]
    accuracy = float(law.max(dim=1).values.mean())
    loss = abs(float((law * law.clamp(min=1e-300).log()).sum(dim=1).mean()))
    return [f"by the exact law on {len(law)} questions: accuracy {accuracy:.3f}, loss {loss:.3f}"]


def symmetry_lines(task: LabelledTask) -> list[str]:
    """Symmetries that hold, and those that do not with the reason; then the assumptions."""
    lines = [
        f"{s.space}s: {s.name}" + ("" if s.holds else f" - broken: {s.why_not}")
        for s in task.symmetries
    ] or ["none declared"]
    says = {True: "holds", False: "does not hold", None: "nothing to assume"}
    own = task.assumptions
    return [
        *lines,
        f"R-invariance {says[own.r_invariant]}; independent offsets "
        f"{says[own.independent_offsets]}; lexinvariance {says[own.lexinvariant]}",
    ]


def text_table(rows: Sequence[Row]) -> str:
    """Rows as aligned columns of plain text."""
    heads = list(rows[0])
    width = {h: max(len(h), *(len(row[h]) for row in rows)) for h in heads}
    lines = [{h: h for h in heads}, {h: "-" * width[h] for h in heads}, *rows]
    return "\n".join("  ".join(line[h].ljust(width[h]) for h in heads).rstrip() for line in lines)
