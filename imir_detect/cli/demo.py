"""`imir-detect demo`: the four shipped models, read."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as RichTable

from imir_detect.cli.terminal import console, escape, plain_table, settings, tell
from imir_detect.result import Report
from imir_detect.table import cell_text
from imir_detect.zoo import SHIPPED, shipped_folder


def demo(
    html: Annotated[
        Path | None, typer.Option(help="A folder for the four reports' pages and their comparison.")
    ] = None,
) -> None:
    """Detect the circuits of the four shipped models and print what the weights say."""
    from imir_detect.pipeline import detect_circuits
    from imir_detect.weights.store import load_model

    reports = {}
    for name in SHIPPED:
        model, card = load_model(shipped_folder(name))
        start = time.perf_counter()
        report = detect_circuits(model)
        seconds = time.perf_counter() - start
        if settings.quiet:
            print(f"{name}: {report.label}")
        console.rule(f"shipped model {name!r}, read in {seconds:.2f} s", style="dim")
        tell(str(report))
        behaviour = ", ".join(f"{k} {v:.2f}" for k, v in card["measured"].items())
        tell(f"for comparison, its behaviour as measured: {behaviour}")
        console.print(_coordinates(report, most=6))
        reports[name] = report
    if html is not None:
        for path in _pages(reports, html):
            console.print(f"page written to {escape(str(path))}")


def _pages(reports: dict[str, Report], folder: Path) -> list[Path]:
    from imir_detect.report.compare import compare

    written = [
        report.to_html(folder / f"{name}.html", name=f"shipped model {name}")
        for name, report in reports.items()
    ]
    return [*written, compare(reports).to_html(folder / "compared.html")]


def _coordinates(report: Report, most: int) -> RichTable:
    """The rows that the circuits rest on: the largest cosines of each unit."""
    columns = ("unit", "head", "path", "nats", "cosine", "predicted")
    table = plain_table(*columns, title="the clearest coordinates:")
    rows = sorted(report.coordinates, key=lambda row: -abs(row["cosine"]))[:most]
    for row in rows:
        head = "-" if row["layer"] is None else f"L{row['layer']}H{row['head']}"
        numbers = [cell_text(row[k]) for k in ("effect", "cosine", "predicted")]
        unit = row["selection"] if row["unit"] == "shift" else row["unit"]
        table.add_row(unit, head, row["path"], *numbers)
    return table
