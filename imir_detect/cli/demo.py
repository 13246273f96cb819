"""`imir-detect demo`: the four shipped models, read."""

from __future__ import annotations

import time

from rich.table import Table as RichTable

from imir_detect.cli.terminal import console, escape, settings
from imir_detect.result import Report
from imir_detect.zoo import SHIPPED, shipped_folder


def demo() -> None:
    """Detect the circuits of the four shipped models and print what the weights say."""
    from imir_detect.pipeline import detect_circuits
    from imir_detect.weights.store import load_model

    for name in SHIPPED:
        model, card = load_model(shipped_folder(name))
        start = time.perf_counter()
        report = detect_circuits(model)
        seconds = time.perf_counter() - start
        if settings.quiet:
            print(f"{name}: {report.label}")
        console.rule(f"shipped model {name!r}, read in {seconds:.2f} s")
        console.print(escape(str(report)))
        behaviour = ", ".join(f"{k} {v:.2f}" for k, v in card["measured"].items())
        console.print(f"for comparison, its behaviour as measured: {behaviour}")
        console.print(_coordinates(report, most=8))


def _coordinates(report: Report, most: int) -> RichTable:
    """The rows that the circuits rest on: the largest cosines of each unit."""
    table = RichTable(title="coordinates: the clearest directions", title_justify="left")
    for name in ("unit", "head", "path", "nats", "cosine", "predicted"):
        table.add_column(name, no_wrap=True)
    rows = sorted(report.coordinates, key=lambda row: -abs(row["cosine"]))[:most]
    for row in rows:
        head = "-" if row["layer"] is None else f"L{row['layer']}H{row['head']}"
        numbers = [f"{row[k]:.2f}" for k in ("effect", "cosine", "predicted")]
        unit = row["selection"] if row["unit"] == "shift" else row["unit"]
        table.add_row(unit, head, row["path"], *numbers)
    return table
