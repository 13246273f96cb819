"""What every script here shares: its options, its table (CSV and markdown) and its figure."""

from __future__ import annotations

import argparse
import ast
import csv
import io
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from imir_detect.files import write_atomically

RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]


def options(description: str) -> argparse.Namespace:
    """`--quick`: minutes instead of the full run. `--out`: where tables and figures go."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer seeds or sizes")
    parser.add_argument("--out", type=Path, default=None, help="folder (default: results/)")
    parser.add_argument("--resume", action="store_true", help="keep rows saved by an earlier run")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    chosen = parser.parse_args()
    if chosen.out is None:
        chosen.out = RESULTS / "quick" if chosen.quick else RESULTS
    return chosen


def saved(chosen: argparse.Namespace, name: str) -> list[Row]:
    """Rows of an earlier run of the same settings, with --resume; else none."""
    file = chosen.out / f"{name}.csv"
    if not chosen.resume or not file.exists():
        return []
    with file.open(newline="") as stream:
        return [{k: _value(v) for k, v in row.items()} for row in csv.DictReader(stream)]


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text or None


def show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if value and not 0.001 <= abs(value) < 1e4 else f"{value:.4g}"
    return "" if value is None else str(value)


def save(rows: Sequence[Row], folder: Path, name: str, note: str = "") -> None:
    """Write NAME.csv (full precision) and NAME.md (rounded, with the note); print the latter."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(folder / f"{name}.csv", table.getvalue().encode())
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(show(row.get(c)) for c in columns) + " |" for row in rows]
    text = "\n".join([f"# {name.replace('_', ' ')}", "", note.strip(), "", *lines, ""])
    write_atomically(folder / f"{name}.md", text.encode())
    print(text)


def figure(folder: Path, name: str, draw: Callable[[Any], None], **subplots: Any) -> None:
    """One SVG, `draw(axes)`. Fixed ids and no date, so that a rerun changes only what changed."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = name
    fig, axes = plt.subplots(**{"figsize": (6, 4), **subplots})
    draw(axes)
    fig.tight_layout()
    fig.savefig(folder / f"{name}.svg", metadata={"Date": None})
    plt.close(fig)


class Clock:
    """Seconds since it was made: `clock()`."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter() - self.start
