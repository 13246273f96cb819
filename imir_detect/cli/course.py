"""`imir-detect detect MODEL --checkpoints`: one model over its checkpoints, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from imir_detect.cli.terminal import console, escape, plain_table, settings, tell
from imir_detect.progress import bar
from imir_detect.result import Report
from imir_detect.table import Table, cell_text

HEADS = {
    "checkpoint": "checkpoint",
    "label": "label",
    "in_context": "context",
    "in_weights": "weights",
    "previous_token": "prev.",
    "duplicate_token": "dupl.",
    "induction": "ind.",
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
    shown = bar(follow_checkpoints(source, **options), what="checkpoints", total=total)
    for name, report in shown:
        reports[name] = report
    table = course(reports)
    if settings.quiet:
        print("\n".join(f"{row['checkpoint']}: {row['label']}" for row in table))
    console.print(_drawn(table))
    tell(compare(reports).summary())
    tell(
        "context, weights: strength of the best circuit; prev., dupl., ind.: highest predicted "
        "attention of any head to the previous token, the earlier copy, the token behind it; "
        "shift to assoc.: largest effect, in nats"
    )
    if json is not None:
        console.print(f"table written to {escape(str(table.to_json(json)))}")
    if html is not None:
        console.print(f"page written to {escape(str(compare(reports).to_html(html)))}")


def _drawn(table: Table) -> RichTable:
    drawn = plain_table(*HEADS.values(), title="verdict and coordinates over checkpoints")
    for row in table:
        drawn.add_row(*(escape(cell_text(row[name])) for name in HEADS))
    return drawn
