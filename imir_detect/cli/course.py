"""`imir-detect detect MODEL --checkpoints`: one model over its checkpoints, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table as RichTable

from imir_detect.cli.terminal import console, settings
from imir_detect.result import Report
from imir_detect.table import Table, cell_text

HEADS = {
    "checkpoint": "checkpoint",
    "label": "label",
    "in_context": "context",
    "in_weights": "weights",
    "previous_token": "previous",
    "duplicate_token": "duplicate",
    "induction": "induction",
    "shift": "shift",
    "match": "match",
    "copy": "copy",
    "associate": "assoc.",
}


def follow(source: str, json: Path | None, html: Path | None, options: dict[str, Any]) -> None:
    """Analyse every checkpoint, one after another, and print the course of its verdict."""
    from imir_detect.checkpoints import course, follow_checkpoints, list_checkpoints
    from imir_detect.report.compare import compare

    reports: dict[str, Report] = {}
    total = len(list_checkpoints(source))
    with console.status(f"checkpoint 1 of {total}") as status:
        for name, report in follow_checkpoints(source, **options):
            reports[name] = report
            status.update(f"checkpoint {min(len(reports) + 1, total)} of {total}")
    table = course(reports)
    if settings.quiet:
        print("\n".join(f"{row['checkpoint']}: {row['label']}" for row in table))
    console.print(_drawn(table))
    console.print(escape(compare(reports).summary()))
    console.print(
        "[dim]context, weights: strength of the best circuit; previous .. induction: highest "
        "predicted attention of any head; shift .. assoc.: largest effect, in nats[/dim]"
    )
    if json is not None:
        console.print(f"table written to {escape(str(table.to_json(json)))}")
    if html is not None:
        console.print(f"page written to {escape(str(compare(reports).to_html(html)))}")


def _drawn(table: Table) -> RichTable:
    drawn = RichTable(title="verdict and coordinates over checkpoints", title_justify="left")
    for name in HEADS.values():
        drawn.add_column(name, no_wrap=True)
    for row in table:
        drawn.add_row(*(escape(cell_text(row[name])) for name in HEADS))
    return drawn
