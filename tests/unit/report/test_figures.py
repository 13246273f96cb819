"""Both renderers draw every figure, from the same table."""

import io
import sys
from typing import Any

import pytest
from studies_cases import GRAPH, PHASE, SUITE

from imir_detect.circuits.eliminate import Elimination
from imir_detect.errors import ImirError, InvalidArgumentError, UnknownNameError
from imir_detect.report.compare import compare
from imir_detect.report.figures import BACKENDS, TABLES, figure, figure_table

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("plotly")
HISTORY = [
    {"step": 0.0, "alpha": 0.1, "beta": 0.2},
    {"step": 50.0, "alpha": 4.0, "beta": 8.0},
]

ELIMINATION = Elimination(0.5, (2, 0), (1,), (0.1, 0.2, 0.4), (1.0, 0.9, 0.8), 0.7, 6)

STUDIES = {
    "phase": PHASE,
    "causal": GRAPH,
    **dict.fromkeys(("leaderboard", "pareto", "cases"), SUITE),
}


def source(name: str, shipped: dict[str, Any]) -> Any:
    if name == "trajectories":
        return HISTORY
    if name == "elimination":
        return ELIMINATION
    if name in STUDIES:
        return STUDIES[name]
    report = shipped["mixed"][1]
    return compare({n: r for n, (_, r) in shipped.items()}) if name == "mosaic" else report


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_figure_has_data_and_both_renderers(
    name: str, backend: str, shipped: dict[str, Any]
) -> None:
    given = source(name, shipped)
    assert len(figure_table(name, given)) > 0
    made = figure(name, given, backend=backend)
    if backend == "matplotlib":
        stream = io.BytesIO()
        made.savefig(stream, format="svg")
        assert stream.getvalue().count(b"<path") > 3
    else:
        assert made.to_plotly_json()["data"]


def test_the_two_renderers_show_the_same_numbers(shipped: dict[str, Any]) -> None:
    report = shipped["mixed"][1]
    shown = figure("roles", report).data[0]
    image = figure("roles", report, backend="matplotlib").axes[0].images[0].get_array()
    assert image.tolist() == [list(line) for line in shown.z]
    table = figure_table("roles", report)
    assert [v for line in shown.z for v in line] == table.column("value")

    curves = figure("profiles", report).data
    axes = figure("profiles", report, backend="matplotlib").axes
    drawn = {axis.get_title(): list(axis.lines[0].get_ydata()) for axis in axes}
    assert {curve.name: list(curve.y) for curve in curves} == drawn

    trace = figure("elimination", ELIMINATION, backend="matplotlib").axes[0].lines
    assert {line.get_label(): list(line.get_ydata()) for line in trace} == {
        "loss": [0.1, 0.2, 0.4],
        "accuracy": [1.0, 0.9, 0.8],
        "budget": [0.5, 0.5, 0.5],
    }
    drawn_too = figure("elimination", ELIMINATION).data
    assert {curve.name: list(curve.y) for curve in drawn_too} == {
        line.get_label(): list(line.get_ydata()) for line in trace
    }

    lines = figure("trajectories", HISTORY, backend="matplotlib").axes[0].lines
    assert {line.get_label(): list(line.get_ydata()) for line in lines} == {
        "alpha": [0.1, 4.0],
        "beta": [0.2, 8.0],
    }


def test_a_circuits_edges_are_drawn_and_no_others(shipped: dict[str, Any]) -> None:
    report = shipped["mixed"][1]
    table = figure_table("graph", report)
    for circuit in range(2):
        count = len([row for row in table if row["circuit"] == circuit])
        assert len(figure("graph", report, circuit=circuit).layout.shapes) == count
        axis = figure("graph", report, circuit=circuit, backend="matplotlib").axes[0]
        paths = [p for p in axis.patches if type(p).__name__ == "PathPatch"]
        assert len(paths) == count


def test_what_cannot_be_drawn_is_refused(
    shipped: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = shipped["icl"][1]
    with pytest.raises(UnknownNameError, match="no such figure; got 'role'; wanted graph, roles"):
        figure("role", report)
    with pytest.raises(InvalidArgumentError, match="'mosaic' is drawn from something else; got Re"):
        figure("mosaic", report)
    with pytest.raises(InvalidArgumentError, match="no such backend; got 'bokeh'; wanted plotly"):
        figure("roles", report, backend="bokeh")
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(ImirError, match=r"this figure needs plotly; .*imir-detect\[report\]"):
        figure("roles", report)
