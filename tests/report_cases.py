"""Reports made by hand for tests of what people see: a large one, and one with hostile text."""

from __future__ import annotations

from dataclasses import replace

import torch

from imir_detect import Circuit, Coverage, Edge, Report, Table
from imir_detect.frame.names import Path

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "{{ 7 * 7 }} {% raw %}",
    "<!--<script>",
    "\u2028&amp;'\u202e",
)


def circuit(
    kind: str, heads: list[tuple[int, int]], edges: list[tuple], strength: float, **effects: float
) -> Circuit:
    """A circuit with embedding edges to all heads and the edges given."""
    into = [Edge("embed", head, port) for head in heads for port in ("Q", "K", "V")]
    return Circuit(
        kind=kind,  # type: ignore[arg-type]
        heads=tuple(heads),
        edges=(*into, *(Edge(*edge) for edge in edges)),
        effects=effects,
        strength=strength,
        coverage=Coverage(0.94, "positions", ("copies at positions 0, 1",)),
    )


def big_report(layers: int = 12, heads: int = 12, back: int = 64) -> Report:
    """A report as a model of this many heads gives: every row is there, the numbers are drawn."""
    draw = torch.Generator().manual_seed(0)

    def number() -> float:
        return float(torch.randn((), generator=draw))

    index = [(layer, head) for layer in range(layers) for head in range(heads)]
    rows: list[tuple] = []

    def row(unit: str, at: tuple[int, int] | None, path: str, selection: str) -> None:
        layer, head = at or (None, None)
        z = None if unit == "shift" else 10 * number()
        shares = torch.rand(2, generator=draw).tolist()
        rows.append((unit, layer, head, path, selection, 2 * number(), shares[0], z, shares[1]))

    for at in index:
        for j in (1, 2, 3):
            row("shift", at, "direct", f"shift {j}")
        row("match", at, "q:direct k:direct", "identity")
        for earlier in (e for e in index if e[0] < at[0]):
            name = str(Path((earlier,)))
            for path in (f"q:direct k:{name}", f"q:{name} k:direct", f"q:{name} k:{name}"):
                row("match", at, path, "identity")
    paths: list[tuple] = [(None, "direct"), *((h, str(Path((h,)))) for h in index)]
    paths += [(b, str(Path((a, b)))) for b in index for a in index if a[0] < b[0]]
    for at, path in paths:
        row("copy", at, path, "identity")
        row("associate", at, path, "association")
    induction = circuit(
        "induction",
        [(2, 3), (4, 7), (6, 1), (7, 10)],
        [
            ((2, 3), (6, 1), "K"),
            ((4, 7), (6, 1), "K"),
            ((4, 7), (7, 10), "K"),
            ((2, 3), (7, 10), "V"),
            ((6, 1), "output", "out"),
            ((7, 10), "output", "out"),
        ],
        0.97,
        shift=4.0,
        match=8.0,
        copy=8.5,
    )
    others = [
        circuit("previous_token", [(2, 3)], [], 0.93),
        circuit("duplicate_token", [(0, 5)], [], 0.81),
        circuit("in_weights", [(9, 0), (11, 2)], [((9, 0), (11, 2), "V"),
                ((9, 0), "output", "out"), ((11, 2), "output", "out")], 0.41, associate=3.2),
    ]  # fmt: skip
    roles = {(2, 3): "previous_token", (4, 7): "previous_token", (6, 1): "induction"}
    roles |= {(7, 10): "induction", (0, 5): "duplicate_token"}
    table = []
    for at in index:
        shares = (torch.rand(6, generator=draw) ** 6).tolist()
        table.append((*at, *shares, roles.get(at, "none")))
    profiles = []
    for at in index:
        curve = torch.softmax(2 * torch.randn(back, generator=draw), 0)
        if roles.get(at) == "previous_token":
            curve = torch.full((back,), 0.1 / (back - 1))
            curve[1] = 0.9
        profiles += [(*at, i, float(value)) for i, value in enumerate(curve)]
    return Report(
        probabilities={"icl": 0.95, "iwl": 0.01, "mixed": 0.03, "none": 0.01},
        circuits=(induction, *others),
        heads=Table(
            (
                "layer",
                "head",
                "previous_token",
                "duplicate_token",
                "induction",
                "copying",
                "suppression",
                "association",
                "role",
            ),
            table,
        ),
        coordinates=Table(
            (
                "unit",
                "layer",
                "head",
                "path",
                "selection",
                "effect",
                "cosine",
                "z",
                "predicted",
            ),
            rows,
        ),
        measured={
            "icl_accuracy": 0.98,
            "ablation": {
                "induction": {
                    "heads": ["L2H3", "L4H7", "L6H1", "L7H10"],
                    "intact": 0.93,
                    "ablated": 0.02,
                    "random": 0.9,
                }
            },
        },
        limits=("positions 64 .. 1023 were not looked at",),
        warnings=(),
        meta={
            "imir_detect": "0.1.0",
            "seed": 0,
            "calibrated": False,
            "model_hash": "0" * 64,
            "model": {"layers": layers, "heads": heads, "d_model": 768, "vocabulary": 50257},
            "relation": {"source": "estimated", "named": 0, "coverage": 0.0, "pairs": []},
        },
        profiles=Table(("layer", "head", "back", "attention"), profiles),
    )


def hostile_report(report: Report) -> Report:
    """The report with hostile text wherever a model, a task or a file could bring text in."""
    first = replace(report.circuits[0], note=HOSTILE[0])
    paths = [*report.coordinates.rows]
    paths[0] = (*paths[0][:3], HOSTILE[1], *paths[0][4:])
    meta = {**report.meta, "tokenizer": HOSTILE[2]}
    meta["relation"] = {
        "source": "given",
        "named": 2,
        "coverage": 0.5,
        "pairs": [[HOSTILE[0], HOSTILE[3]], [HOSTILE[4], 3]],
    }
    return replace(
        report,
        circuits=(first, *report.circuits[1:]),
        coordinates=Table(report.coordinates.columns, paths),
        limits=HOSTILE,
        warnings=HOSTILE,
        measured={**report.measured, HOSTILE[3]: HOSTILE[0]},
        meta=meta,
    )
