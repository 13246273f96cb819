"""What the page's script reads: heads, circuits and all coordinates, as strict and compact JSON."""

from __future__ import annotations

import json
from typing import Any

from imir_detect.coordinates.pathsum import name_of
from imir_detect.report.sentences import sentences_by_head
from imir_detect.result import Report
from imir_detect.table import Table

FIRST_ROWS = 50  # coordinates shown where no script runs


def embedded(data: Any) -> str:
    """Strict JSON for a script block: no NaN, and nothing in it that HTML could take for a tag."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def script_data(report: Report, coordinates: Table) -> dict[str, Any]:
    """Head sentences, circuits by name, and the coordinates column by column."""
    sentences = sentences_by_head(report)
    heads = {}
    for row in report.heads:
        index = (row["layer"], row["head"])
        role = row["role"].replace("_", " ")
        heads[name_of(index)] = {
            "role": "No role in a circuit." if role == "none" else f"Role: {role}.",
            "sentences": sentences.get(index, ()),
        }
    circuits = [
        {
            "text": f"{c.kind.replace('_', ' ')} (strength {c.strength:.2f})",
            "heads": [name_of(h) for h in c.heads],
        }
        for c in report.circuits
    ]
    columns = [_column(coordinates, name) for name in coordinates.columns]
    return {"heads": heads, "circuits": circuits, "coordinates": columns}


def _column(table: Table, name: str) -> dict[str, Any]:
    """A column for the script: numbers to four digits, words as indices into their levels."""
    values = table.column(name)
    if is_number(table, name):
        whole = all(isinstance(v, int) for v in values)
        return {"name": name, "whole": whole, "values": [_four_digits(v) for v in values]}
    levels = {text: i for i, text in enumerate(dict.fromkeys(map(str, values)))}
    return {"name": name, "levels": list(levels), "values": [levels[str(v)] for v in values]}


def _four_digits(value: float | None) -> float | int | None:
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.4g}")


def is_number(table: Table, name: str) -> bool:
    """Whether a column holds numbers, or nothing."""
    return all(v is None or isinstance(v, int | float) for v in table.column(name))


def one_head_column(table: Table) -> Table:
    """The table with `layer` and `head` as one word, "-" for the direct read-out."""
    if "layer" not in table.columns or "head" not in table.columns:
        return table
    layer, head = table.columns.index("layer"), table.columns.index("head")
    names = ["head" if c == "layer" else c for c in table.columns if c != "head"]
    rows = []
    for row in table.rows:
        word = "-" if row[layer] is None else name_of((row[layer], row[head]))
        rows.append([word if i == layer else v for i, v in enumerate(row) if i != head])
    return Table(names, rows)


def clearest(table: Table) -> list[tuple[Any, ...]]:
    """The rows with the largest cosines."""
    place = table.columns.index("cosine")
    return sorted(table.rows, key=lambda row: -abs(row[place] or 0.0))[:FIRST_ROWS]
