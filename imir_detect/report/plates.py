"""Pages of studies: a latent causal graph, and the leaderboard of circuit-discovery methods.

As the report's own page they are one file each, load nothing, and are redrawn from saved results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imir_detect.circuits.causal_graph import CausalGraph
from imir_detect.files import write_atomically
from imir_detect.report.charts import scatter
from imir_detect.report.page import asset, jinja, markup, script_hash, style
from imir_detect.report.studies import (
    arc,
    case_grid,
    case_table,
    causal_table,
    leaderboard_table,
    pareto_table,
)
from imir_detect.report.tables import grouped
from imir_detect.report.walls import shade
from imir_detect.table import Table, cell_text

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Arc:
    """An edge, or a candidate that did not pass, as an SVG path."""

    path: str
    width: float
    strong: bool
    said: str


@dataclass(frozen=True)
class Arcs:
    """Positions on a line at height `line`, and arcs over it."""

    said: str
    width: float
    height: float
    line: float
    nodes: tuple[tuple[float, str], ...]
    arcs: tuple[Arc, ...]


def write_graph_page(graph: CausalGraph, path: Path | str, *, name: str = "") -> Path:
    """Write the page of a causal graph that was read; returns the path. `name`: the model's."""
    table = causal_table(graph)
    source = "the weights of layer 0" if graph.source == "weights" else "the data's gradient"
    lead = f"{_counted(len(graph.edges), 'edge')} among {_counted(graph.n_nodes, 'position')}, "
    lead += f"read from {source}. "
    lead += _parents(graph)
    return _write(
        path,
        "graph.html.j2",
        title=f"{name or 'A model'}: its latent causal graph",
        name=name,
        lead=lead,
        arcs=draw_arcs(graph, table),
        table=table,
        notes=graph.notes,
    )


def write_leaderboard_page(rows: Rows, path: Path | str) -> Path:
    """Write the page of a suite's rows; returns the path.

    Raises InvalidArgumentError where the rows are not those of a suite.
    """
    board = leaderboard_table(rows)
    methods, names, grid = case_grid(case_table(rows))
    return _write(
        path,
        "leaderboard.html.j2",
        title=f"{_counted(len(methods), 'circuit-discovery method')} on "
        f"{_counted(len(names), 'case')}",
        boards=grouped(board, "granularity"),
        chart=scatter(pareto_table(rows)),
        methods=methods,
        grid=list(zip(names, grid, strict=True)),
        reasons=_reasons(rows),
    )


def draw_arcs(graph: CausalGraph, table: Table) -> Arcs:
    """The picture of `causal_table`, ready to be written as SVG."""
    step = max(16.0, min(48.0, 1000 / max(1, graph.n_nodes)))
    shapes = [(row, *arc(row["parent"], row["child"])) for row in table]
    tall = 26 * max([1.0, *(max(ys) for _, _, ys in shapes)]) ** 0.9
    unit = tall / max([1.0, *(max(ys) for _, _, ys in shapes)])
    line = tall + 14

    def at(x: float, y: float) -> str:
        return f"{24 + step * x:.1f} {line - unit * y:.1f}"

    drawn = [
        Arc(
            "M" + "L".join(at(x, y) for x, y in zip(xs, ys, strict=True)),
            round(1 + 2.5 * row["confidence"], 1) if row["edge"] else 0.7,
            bool(row["edge"]),
            f"{row['parent']} to {row['child']}"
            + ("" if row["head"] is None else f", head {row['head']}")
            + f": confidence {row['confidence']:.2f}, effect {row['effect']:.2f}, "
            f"p {row['p_value']:.3g}",
        )
        for row, xs, ys in shapes
    ]
    nodes = tuple((round(24 + step * n, 1), str(n)) for n in range(graph.n_nodes))
    said = ", ".join(f"{e.parent} to {e.child}" for e in graph.edges) or "no edges"
    width = 48 + step * max(1, graph.n_nodes - 1)
    return Arcs(said, width, line + 30, line, nodes, tuple(reversed(drawn)))


def _parents(graph: CausalGraph) -> str:
    if not graph.edges:
        return "No head stands out from noise, so there is no graph."
    many = "one other" if graph.n_parents == 1 else f"{graph.n_parents} others"
    free = len(graph.roots)
    roots = f"{free} depend{'s' if free == 1 else ''} on none" if free else "all depend on some"
    open_ = len(graph.undecided)
    rest = f"; of {open_} it could not be told" if open_ else ""
    return f"As a rule a position depends on {many}; {roots}{rest}."


def _reasons(rows: Rows) -> list[tuple[str, int, str]]:
    """Method, number of runs, and the reason, of what declined or failed."""
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        if row["status"] != "ok":
            key = (row["method"], f"{row['status']}: {row['reason']}")
            counts[key] = counts.get(key, 0) + 1
    return [(method, count, reason) for (method, reason), count in counts.items()]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else "< 0.01" if value < 0.01 else f"{value:.3g}"


def _write(path: Path | str, template: str, **values: Any) -> Path:
    environment, script = jinja(), asset("common.js")
    path = Path(path)
    text = environment.get_template(template).render(
        **values,
        cell=cell_text,
        shade=shade,
        seconds=_seconds,
        style=markup(style(environment)),
        script=markup(script),
        script_hash=markup(script_hash(script)),
    )
    write_atomically(path, text.encode(errors="backslashreplace"))
    return path
