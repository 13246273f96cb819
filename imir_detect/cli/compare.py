"""`imir-detect compare`: saved reports side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from imir_detect.cli.terminal import console, escape, settings, tell
from imir_detect.errors import InvalidArgumentError


def compare(
    reports: Annotated[list[Path], typer.Argument(help="Reports that `detect --json` wrote.")],
    json: Annotated[Path | None, typer.Option(help="Write the table as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the comparison as a page.")] = None,
) -> None:
    """Compare saved reports, in the order given; a model is named after its file."""
    from imir_detect.report.compare import compare as side_by_side
    from imir_detect.result import Report

    names = [path.stem for path in reports]
    if len(set(names)) < len(names):
        names = [str(path) for path in reports]
    if len(set(names)) < len(names):
        raise InvalidArgumentError(
            "a report is given twice",
            got=", ".join(sorted({n for n in names if names.count(n) > 1})),
            wanted="different files",
            todo="name each once",
        )
    found = side_by_side(
        {name: Report.from_json(path) for name, path in zip(names, reports, strict=True)}
    )
    if settings.quiet:
        print("\n".join(f"{row['model']}: {row['label']}" for row in found.table))
    console.print(escape(str(found)), soft_wrap=True)
    tell(found.summary())
    if json is not None:
        console.print(f"table written to {escape(str(found.table.to_json(json)))}")
    if html is not None:
        console.print(f"page written to {escape(str(found.to_html(html)))}")
