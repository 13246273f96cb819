"""`imir-detect detect`: the circuits of one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as RichTable

from imir_detect.cli.course import follow
from imir_detect.cli.terminal import Model, Seed, console, escape, load, plain_table, settings, tell
from imir_detect.result import Report
from imir_detect.table import cell_text

MOST_HEADS = 24  # lines of the head table


def detect(
    model: Model,
    json: Annotated[Path | None, typer.Option(help="Write the report as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page.")] = None,
    context: Annotated[int | None, typer.Option(help="Positions that compete.")] = None,
    seed: Seed = 0,
    verify: Annotated[bool, typer.Option(help="Ablate the circuits found, too.")] = False,
    checkpoints: Annotated[
        bool,
        typer.Option(
            "--checkpoints",
            help="MODEL is a folder of checkpoints, or a name on the hub with revisions: follow "
            "coordinates and verdict over them. JSON: the table; HTML: the comparison.",
        ),
    ] = False,
) -> None:
    """Detect the circuits of one model and print the report."""
    from imir_detect.pipeline import detect_circuits

    options: dict[str, Any] = {
        "context": context,
        "seed": seed,
        "verify": "ablate" if verify else None,
    }
    if checkpoints:
        follow(model, json, html, options)
        return
    with console.status("reading the model"):
        loaded = load(model)
    report = detect_circuits(loaded, **options)  # shows its own bars where it takes long
    if settings.quiet:
        print(report.label)
    tell(str(report))
    for text in report.limits:
        tell(f"  limit: {text}")
    console.print(_heads(report))
    if json is not None:
        console.print(f"report written to {escape(str(report.to_json(json)))}")
    if html is not None:
        console.print(f"page written to {escape(str(report.to_html(html, name=model)))}")


def _heads(report: Report) -> RichTable:
    """The head table under short column names, so that it fits a terminal; of many heads those
    with a role, or the largest shares."""
    short = {
        "previous_token": "previous",
        "duplicate_token": "duplicate",
        "induction": "induction",
        "copying": "copies",
        "suppression": "suppr.",
        "association": "assoc.",
        "role": "role",
    }
    title = "heads: predicted attention, read-out, role"
    rows = list(report.heads)
    if len(rows) > MOST_HEADS:
        rows = sorted(rows, key=lambda row: (row["role"] == "none", -_largest(row)))[:MOST_HEADS]
        rows.sort(key=lambda row: (row["layer"], row["head"]))
        title += f"\n({MOST_HEADS} of {len(report.heads)}; all of them with --json or --html)"
    table = plain_table("head", *short.values(), title=title)
    for row in rows:
        entries = (cell_text(row[name]) for name in short)
        table.add_row(f"L{row['layer']}H{row['head']}", *entries)
    return table


def _largest(row: dict[str, Any]) -> float:
    return max(row[name] or 0.0 for name in ("previous_token", "duplicate_token", "induction"))
