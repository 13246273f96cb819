"""The data behind every picture: tidy tables made from a report, drawn by several renderers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from imir_detect.circuits.core import IN_CONTEXT, Circuit
from imir_detect.coordinates.pathsum import OUTPUT, Edge, name_of
from imir_detect.result import Report
from imir_detect.table import Table

MEASURES = (
    "previous_token",
    "duplicate_token",
    "induction",
    "copying",
    "suppression",
    "association",
)
PORT_COLOURS = {"Q": "#b45309", "K": "#1d4ed8", "V": "#047857", "out": "#6d28d9"}
LABEL_COLOURS = {"icl": "#1d4ed8", "iwl": "#b45309", "mixed": "#6d28d9", "none": "#6b7280"}


def grouped(table: Table, column: str) -> dict[Any, list[dict[str, Any]]]:
    """The rows by the value of one column, in order of first appearance."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in table:
        groups.setdefault(row[column], []).append(row)
    return groups


def graph_nodes(report: Report) -> Table:
    """One row a head: node, layer, head, role, circuits (indices of those that list it)."""
    rows = []
    for row in report.heads:
        index = (row["layer"], row["head"])
        member = tuple(i for i, c in enumerate(report.circuits) if index in c.heads)
        rows.append((name_of(index), *index, row["role"], member))
    return Table(("node", "layer", "head", "role", "circuits"), rows)


def graph_edges(report: Report) -> Table:
    """One row an edge of a circuit: circuit (index), kind, source, target, port, unit, effect.

    `effect` (nats) is that of the direction which the edge makes: for a K edge from A the match
    of the target's token with what the key reads through A, for a Q edge likewise; for a V edge
    and an edge to the output the copy, or the association in an in-weights circuit, along that
    path. None where no coordinate stands for the edge, as for those from the embedding to a head.
    """
    effects = {
        (row["unit"], row["layer"], row["head"], row["path"]): row["effect"]
        for row in report.coordinates
    }
    rows = []
    for index, circuit in enumerate(report.circuits):
        for edge in circuit.edges:
            unit, at, path = _direction(circuit, edge)
            effect = effects.get((unit, *at, path)) if unit else None
            ends = (name_of(edge.source), name_of(edge.target))
            rows.append((index, circuit.kind, *ends, edge.port, unit, effect))
    return Table(("circuit", "kind", "source", "target", "port", "unit", "effect"), rows)


def _direction(
    circuit: Circuit, edge: Edge
) -> tuple[str | None, tuple[int, int] | tuple[None, None], str]:
    """Unit, head and path of the coordinate that an edge makes; unit None for one without."""
    written = "associate" if circuit.kind == "in_weights" else "copy"
    if isinstance(edge.source, str):
        return (written if edge.target == OUTPUT else None), (None, None), "direct"
    source = name_of(edge.source)
    if isinstance(edge.target, str):
        return written, edge.source, source
    unit, path = {
        "K": ("match", f"q:direct k:{source}"),
        "Q": ("match", f"q:{source} k:direct"),
        "V": (written, f"{source}>{name_of(edge.target)}"),
    }[edge.port]
    return unit, edge.target, path


def role_table(report: Report) -> Table:
    """The head table in long form: node, layer, head, measure, value (None where undefined)."""
    rows = [
        (name_of((row["layer"], row["head"])), row["layer"], row["head"], measure, row[measure])
        for row in report.heads
        for measure in MEASURES
    ]
    return Table(("node", "layer", "head", "measure", "value"), rows)


def profile_table(report: Report) -> Table:
    """Attention by distance: node, layer, head, back, attention."""
    rows = ((name_of((r["layer"], r["head"])), *r.values()) for r in report.profiles)
    return Table(("node", "layer", "head", "back", "attention"), rows)


def verdict_table(reports: Mapping[str, Report]) -> Table:
    """One row a model: name, label, the four probabilities, the strongest circuit and its
    strength, strengths of the best in-context and in-weights circuit (0 where none), context and
    measured accuracies where a task was run (None where not)."""
    rows = []
    for name, report in reports.items():
        best = report.circuits[0] if report.circuits else None
        shares = [report.probabilities[k] for k in ("icl", "iwl", "mixed", "none")]
        rows.append(
            (
                name,
                report.label,
                *shares,
                best.kind if best else None,
                best.strength if best else None,
                _strongest(report, *IN_CONTEXT),
                _strongest(report, "in_weights"),
                len(report.heads),
                _number(report.measured.get("icl_accuracy")),
                _number(report.measured.get("iwl_accuracy")),
            )
        )
    return Table(
        (
            "model",
            "label",
            "icl",
            "iwl",
            "mixed",
            "none",
            "strongest",
            "strength",
            "in_context",
            "in_weights",
            "heads",
            "icl_accuracy",
            "iwl_accuracy",
        ),
        rows,
    )


def _strongest(report: Report, *kinds: str) -> float:
    return max((c.strength for c in report.circuits if c.kind in kinds), default=0.0)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
