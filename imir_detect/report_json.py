"""A report's JSON, checked field by field before anything is made of it.

A report can come from anywhere; pages and comparisons rely on its fields without looking again.
"""

from __future__ import annotations

from typing import Any, get_args

from imir_detect.circuits.core import Circuit, Coverage, Kind
from imir_detect.circuits.verdict import LABELS
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, PORTS, Edge
from imir_detect.errors import ImirError, some
from imir_detect.linalg import ROUNDOFF
from imir_detect.strict import (
    COUNT,
    NUMBER,
    POSITIVE,
    SHARE,
    TEXT,
    Is,
    Shape,
    check_shape,
    either,
    misfits,
    one_of,
    or_null,
)
from imir_detect.table import Table

FORMAT = 1
HEAD = (COUNT, COUNT)
NODE = Is(
    lambda v: (
        v in (EMBED, OUTPUT)
        if isinstance(v, str)
        else isinstance(v, list) and len(v) == 2 and all(COUNT.holds(x) for x in v)
    ),
    "a head [layer, head], 'embed' or 'output'",
)
TABLE = {"columns": [TEXT], "rows": [Is(lambda v: isinstance(v, list), "a list")]}
COLUMNS: dict[str, dict[str, Is]] = {
    "heads": {
        "layer": COUNT,
        "head": COUNT,
        **dict.fromkeys(("previous_token", "duplicate_token", "induction"), or_null(NUMBER)),
        **dict.fromkeys(("copying", "suppression", "association"), or_null(NUMBER)),
        "role": TEXT,
    },
    "coordinates": {
        "unit": TEXT,
        "layer": or_null(COUNT),
        "head": or_null(COUNT),
        "path": TEXT,
        "selection": TEXT,
        "effect": NUMBER,
        **dict.fromkeys(("cosine", "z", "predicted"), or_null(NUMBER)),
    },
    "profiles": {"layer": COUNT, "head": COUNT, "back": COUNT, "attention": NUMBER},
}
CELL = Is(lambda v: not isinstance(v, list | dict), "text, a number, true, false or null")
CONDITIONS = {"intact": NUMBER, "ablated": NUMBER, "random": or_null(NUMBER)}
REPORT: dict[str, Shape] = {
    "format": one_of(FORMAT),
    "label?": one_of(*LABELS),
    "probabilities": dict.fromkeys(LABELS, SHARE),
    "circuits": [
        {
            "kind": one_of(*get_args(Kind)),
            "heads": [HEAD],
            "edges": [(NODE, NODE, one_of(*PORTS, "out"))],
            "effects": {str: NUMBER},
            "strength": SHARE,
            "coverage": {"share": SHARE, "of": one_of("positions", "tokens"), "exceptions": [TEXT]},
            "note": TEXT,
            "parts?": [(HEAD, TEXT)],
            "hops?": POSITIVE,
        }
    ],
    "heads": TABLE,
    "coordinates": TABLE,
    "profiles?": TABLE,
    "measured": {
        "ablation?": {
            str: {
                "heads": [TEXT],
                **CONDITIONS,
                "resampled?": or_null(NUMBER),
                "intervals?": {str: (NUMBER, NUMBER)},
                "asked?": TEXT,
                "forward_passes?": COUNT,
                "edges?": [{"edge": TEXT, "measures": TEXT, **CONDITIONS}],
            }
        }
    },
    "limits": [TEXT],
    "warnings": [TEXT],
    "meta": {
        "model?": dict.fromkeys(("layers", "heads", "d_model", "vocabulary"), COUNT),
        "relation?": {
            "source": TEXT,
            "named": COUNT,
            "coverage": SHARE,
            "pairs?": [(either(TEXT, COUNT), either(TEXT, COUNT))],
            "spelled?": [(TEXT, TEXT)],
        },
    },
}


def report_fields(data: Any) -> dict[str, Any]:
    """The fields of a `Report` from what a file held.

    Raises ValueError naming every field that is not what it should be.
    """
    check_shape(data, REPORT)
    wrong = [text for name in COLUMNS if name in data for text in _table_misfits(name, data[name])]
    if not wrong:
        wrong = _contradictions(data)
    if wrong:
        raise ValueError(some(wrong, joint="; "))
    fields = {
        "probabilities": {label: data["probabilities"][label] for label in LABELS},
        "circuits": tuple(_circuit(entry) for entry in data["circuits"]),
        "measured": data["measured"],
        "limits": tuple(data["limits"]),
        "warnings": tuple(data["warnings"]),
        "meta": data["meta"],
    }
    return fields | {name: Table(**_plain(data[name])) for name in COLUMNS if name in data}


def _plain(table: dict[str, Any]) -> dict[str, Any]:
    return {"columns": table["columns"], "rows": table["rows"]}


def _table_misfits(name: str, table: dict[str, Any]) -> list[str]:
    columns, rows = table["columns"], table["rows"]
    missing = [column for column in COLUMNS[name] if column not in columns]
    if missing:
        return [f"{name} lacks the columns {', '.join(missing)}"]
    if len(set(columns)) < len(columns):
        return [f"{name} has a column twice"]
    ragged = next((i for i, row in enumerate(rows) if len(row) != len(columns)), None)
    if ragged is not None:
        return [f"{name}.rows[{ragged}] has {len(rows[ragged])} entries, not {len(columns)}"]
    wrong: list[str] = []
    for place, column in enumerate(columns):
        kind = COLUMNS[name].get(column, CELL)
        for i, row in enumerate(rows):
            if not kind.holds(row[place]):
                wrong += misfits(row[place], kind, f"{name}.rows[{i}].{column}", "")
    return wrong


def _contradictions(data: dict[str, Any]) -> list[str]:
    """What the fields say that cannot be true together."""
    wrong = []
    chances = [data["probabilities"][label] for label in LABELS]
    if abs(sum(chances) - 1) > ROUNDOFF:
        wrong.append(f"the probabilities sum to {sum(chances):.6g}, not to 1")
    best = LABELS[chances.index(max(chances))]
    if data.get("label", best) != best:
        wrong.append(f"the label is {data['label']!r}, the most probable one {best!r}")
    columns = data["heads"]["columns"]
    places = [columns.index("layer"), columns.index("head")]
    heads = {tuple(row[i] for i in places) for row in data["heads"]["rows"]}
    layers, each = (1 + max((h[i] for h in heads), default=-1) for i in (0, 1))
    if len(heads) != len(data["heads"]["rows"]) or len(heads) != layers * each:
        wrong.append(f"heads are not one row for each of {layers} layers of {each} heads")
    for i, circuit in enumerate(data["circuits"]):
        named = {tuple(head) for head in circuit["heads"]}
        read = {tuple(end) for e in circuit["edges"] for end in e[:2] if not isinstance(end, str)}
        if not named <= heads or not read <= named:
            odd = sorted((named - heads) | (read - named))
            wrong.append(f"circuits[{i}] has heads that are not listed: {some(odd)}")
    return wrong


def _circuit(entry: dict[str, Any]) -> Circuit:
    def node(value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    coverage = entry["coverage"]
    try:
        return Circuit(
            kind=entry["kind"],
            heads=tuple(node(h) for h in entry["heads"]),
            edges=tuple(Edge(node(s), node(t), port) for s, t, port in entry["edges"]),
            effects=entry["effects"],
            strength=entry["strength"],
            coverage=Coverage(coverage["share"], coverage["of"], tuple(coverage["exceptions"])),
            note=entry["note"],
            parts=tuple((node(head), role) for head, role in entry.get("parts", ())),
            hops=entry.get("hops", 1),
        )
    except ImirError as error:
        raise ValueError(str(error)) from error
