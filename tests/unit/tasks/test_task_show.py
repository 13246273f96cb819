"""The registry as text, and the page that is made of it."""

from __future__ import annotations

import runpy
from pathlib import Path

import torch

from imir_detect.tasks import REGISTRY, IndirectObject, LabelledTask, OffsetCopy, make_task
from imir_detect.tasks.show import example, knob_rows, show_task, task_list, task_rows

DOCS = Path(__file__).parents[3] / "docs"


def test_the_list_names_every_task_once_and_marks_the_controls() -> None:
    rows = task_rows()
    assert [row["task"] for row in rows] == list(REGISTRY)
    controls = {row["task"] for row in rows if row["circuits"] == "(control)"}
    assert controls == {"copy_last", "offset_copy", "unigram", "majority", "sorting", "periodic"}
    lines = task_list().splitlines()
    assert len(lines) == 2 + len(rows)
    assert lines[2].split()[0] == "recall"


def test_an_example_reads_as_a_sentence() -> None:
    task = IndirectObject(n_blocks=1)
    batch = task.sample(1, generator=torch.Generator().manual_seed(0))
    first, second = (task.token_name(int(t)) for t in batch.tokens[0, [0, 2]])
    subject, answer = (task.token_name(int(t)) for t in (batch.tokens[0, 4], batch.targets[0, -1]))
    assert {subject, answer} == {first, second}
    assert example(task, batch, 0) == f"[{first} and {second} went] [{subject} gave ?] -> {answer}"


def test_a_sequence_with_many_questions_lists_their_answers() -> None:
    task = OffsetCopy(n_tokens=4, offset=2)
    batch = task.sample(1, generator=torch.Generator().manual_seed(0))
    a, b, c, d = (task.token_name(t) for t in batch.tokens[0].tolist())
    assert example(task, batch, 0) == f"{a} {b} {c} {d} ? -> after places 2..3: {a} {b}"


def test_showing_a_task_gives_examples_ceiling_symmetries_circuits_and_knobs() -> None:
    for name in REGISTRY:
        text = show_task(name, examples=2)
        assert text.startswith(f"{name}: ")
        labels = ("Symmetries", "Circuits that solve it")
        labelled = isinstance(make_task(name), LabelledTask)
        for part in ("Examples", "Ceiling", "Knobs: ", *(labels if labelled else ())):
            assert part in text, (name, part)
        assert text.count(" -> ") >= 2
        assert show_task(name, examples=2) == text
        for row in knob_rows(name):
            assert f"{row['knob']}={row['default']}" in text


def test_what_is_not_closed_is_said_to_come_from_the_law_or_not_at_all() -> None:
    assert "by the exact law on" in show_task("unigram")
    large = make_task("automaton", states=6, symbols=5, arcs=3)
    assert "\n  not closed\n" in show_task(large)  # type: ignore[arg-type]
    assert "R and the query alone: accuracy 0.5161" in show_task("recall")


def test_the_page_is_up_to_date() -> None:
    made = runpy.run_path(str(DOCS / "make_tasks.py"))
    assert (DOCS / "tasks.md").read_text(encoding="utf-8") == made["page"](), (
        "run python docs/make_tasks.py"
    )
