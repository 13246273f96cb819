"""`imir-detect detect`: the circuits of one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as RichTable

from imir_detect.cli.terminal import Model, Seed, console, escape, load, settings
from imir_detect.result import Report
from imir_detect.table import cell_text


def detect(
    model: Model,
    json: Annotated[Path | None, typer.Option(help="Write the report as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page.")] = None,
    context: Annotated[int | None, typer.Option(help="Positions that compete.")] = None,
    seed: Seed = 0,
    verify: Annotated[bool, typer.Option(help="Ablate the circuits found, too.")] = False,
) -> None:
    """Detect the circuits of one model and print the report."""
    from imir_detect.pipeline import detect_circuits

    with console.status("reading the model"):
        loaded = load(model)
    with console.status("reading its circuits"):
        report = detect_circuits(
            loaded, context=context, seed=seed, verify="ablate" if verify else None
        )
    if settings.quiet:
        print(report.label)
    console.print(escape(str(report)))
    for text in report.limits:
        console.print(f"[dim]  limit: {escape(text)}[/dim]")
    console.print(_heads(report))
    if json is not None:
        console.print(f"report written to {escape(str(report.to_json(json)))}")
    if html is not None:
        console.print(f"page written to {escape(str(report.to_html(html, name=model)))}")


def _heads(report: Report) -> RichTable:
    """The head table under short column names, so that it fits a terminal."""
    table = RichTable(title="heads: predicted attention, read-out, role", title_justify="left")
    short = {
        "previous_token": "previous",
        "duplicate_token": "duplicate",
        "induction": "induction",
        "copying": "copies",
        "suppression": "suppr.",
        "association": "assoc.",
        "role": "role",
    }
    for name in ("head", *short.values()):
        table.add_column(name, no_wrap=True)
    for row in report.heads:
        entries = (cell_text(row[name]) for name in short)
        table.add_row(f"L{row['layer']}H{row['head']}", *entries)
    return table
