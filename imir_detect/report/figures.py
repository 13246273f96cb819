"""Figures by name: a tidy table first, then one of two renderers draws that same table.

figure("roles", report)                          # a plotly figure, for a notebook
figure("roles", report, backend="matplotlib")    # a matplotlib figure, for a paper
figure_table("roles", report).to_pandas()        # the data, to draw it yourself
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from imir_detect.circuits.causal_graph import CausalGraph
from imir_detect.circuits.eliminate import Elimination
from imir_detect.errors import ImirError, InvalidArgumentError, UnknownNameError
from imir_detect.report.compare import Comparison
from imir_detect.report.studies import (
    case_table,
    causal_table,
    leaderboard_table,
    pareto_table,
    phase_table,
)
from imir_detect.report.tables import graph_edges, profile_table, role_table
from imir_detect.result import Report
from imir_detect.table import Table

BACKENDS = ("plotly", "matplotlib")


def trajectory_table(history: Iterable[Mapping[str, float]]) -> Table:
    """Numbers over training in long form: step, series, value.

    `history`: rows with "step" and one number a series, such as `CoordinateTracker.history`.
    """
    rows = [
        (row["step"], name, value)
        for row in history
        for name, value in row.items()
        if name != "step"
    ]
    return Table(("step", "series", "value"), rows)


def elimination_table(found: Elimination) -> Table:
    """The trace of Algorithm 1: removed (so many directions are gone), loss in nats, accuracy, and
    the budget that the loss may not exceed."""
    trace = zip(found.losses, found.accuracies, strict=True)
    rows = ((i, loss, accuracy, found.budget) for i, (loss, accuracy) in enumerate(trace))
    return Table(("removed", "loss", "accuracy", "budget"), rows)


# What each figure is drawn from, and what it is given: one line a figure.
TABLES: dict[str, tuple[type, Callable[[Any], Table]]] = {  # Sequence: rows, as dicts
    "graph": (Report, graph_edges),
    "roles": (Report, role_table),
    "profiles": (Report, profile_table),
    "mosaic": (Comparison, lambda comparison: comparison.table),
    "trajectories": (Sequence, trajectory_table),
    "elimination": (Elimination, elimination_table),
    "phase": (Sequence, phase_table),
    "causal": (CausalGraph, causal_table),
    "leaderboard": (Sequence, leaderboard_table),
    "pareto": (Sequence, pareto_table),
    "cases": (Sequence, case_table),
}


def figure_table(name: str, source: Any) -> Table:
    """The tidy table behind a figure.

    - name: of which figure.
    - source: a Report for "graph" (edges of all circuits), "roles" (head x measure) and
      "profiles" (attention by distance); a Comparison for "mosaic"; the history of a
      `CoordinateTracker` or of a training run for "trajectories"; what `eliminate` found for
      "elimination"; a CausalGraph for "causal"; rows of `theory.competition.outcome_row` for
      "phase"; rows of a benchmark suite (`run_suite`, `read_rows`) for "leaderboard", "pareto"
      and "cases".

    One row a mark of the figure; attention and accuracies in [0, 1], effects and losses in nats.

    Raises UnknownNameError for another name, InvalidArgumentError for another source.

    >>> from imir_detect import figure_table
    >>> figure_table("trajectories", [{"step": 0, "alpha": 0.1}, {"step": 50, "alpha": 4.0}])
    step  series  value
    0     alpha   0.10
    50    alpha   4.00
    """
    if name not in TABLES:
        raise UnknownNameError(
            "no such figure", got=repr(name), wanted=", ".join(TABLES), todo="use one"
        )
    kind, make = TABLES[name]
    if not isinstance(source, kind) or isinstance(source, str | Table):
        raise InvalidArgumentError(
            f"the figure {name!r} is drawn from something else",
            got=type(source).__name__,
            wanted="a list of rows" if kind is Sequence else kind.__name__,
            todo="pass what the docstring of figure_table names",
        )
    return make(source)


def figure(name: str, source: Any, *, backend: str = "plotly", **options: Any) -> Any:
    """A figure, drawn from the table that `figure_table` gives for the same name and source.

    - name, source: as in `figure_table`.
    - backend: "plotly" (hover, notebooks) or "matplotlib" (`savefig` to SVG or PDF).
    - options: the figure's own; "graph" takes `circuit`, the index of the circuit to draw.

    Returns a `plotly.graph_objects.Figure` or a `matplotlib.figure.Figure`.

    Raises as `figure_table` does, and ImirError where the backend is not installed (extra
    `report`).

    >>> from imir_detect import detect_circuits, shipped_model
    >>> figure("roles", detect_circuits(shipped_model("icl")), backend="matplotlib")  # doctest: +SKIP
    """  # noqa: E501
    table = figure_table(name, source)
    if backend not in BACKENDS:
        raise InvalidArgumentError(
            "no such backend", got=repr(backend), wanted=" or ".join(BACKENDS), todo="use one"
        )
    try:
        import_module(backend)
    except ImportError as error:
        raise ImirError(
            f"this figure needs {backend}",
            got="no such module",
            todo="pip install 'imir-detect[report]'",
        ) from error
    renderer = import_module(f"imir_detect.report.draw_{backend}")
    if name == "graph":  # drawn by its layout, which is made from the same table
        return renderer.graph(source, **options)
    return getattr(renderer, name)(table, **options)
