"""Figures of studies: tables by hand, both renderers show them, labels do not lie on each other."""

import math
from typing import Any

import pytest
from studies_cases import GRAPH, PHASE, SUITE, run

from imir_detect.circuits.causal_graph import CausalGraph
from imir_detect.errors import InvalidArgumentError
from imir_detect.report.figures import figure, figure_table
from imir_detect.report.studies import OUTCOME_COLOURS, arc, label_places

pytest.importorskip("matplotlib")
pytest.importorskip("plotly")


def test_a_phase_diagram_has_a_cell_an_outcome() -> None:
    table = figure_table("phase", PHASE)
    assert len(table) == 2 * len(PHASE)
    assert table[3] == {
        "f_r": 0.6, "f_v": 0.0, "b": 1, "outcome": "trained", "label": "icl", "icl": 0.8,
        "iwl": 0.2, "on_border": True,
    }  # fmt: skip
    drawn = figure("phase", PHASE, backend="matplotlib")
    left, right = drawn.axes
    assert [left.get_title(), right.get_title()] == ["predicted, b = 1", "trained, b = 1"]
    assert [t.get_text() for t in left.texts] == ["iwl", "both", "none"]
    assert [t.get_text() for t in right.texts] == ["iwl", "icl", "iwl"]
    assert left.texts[1].get_position() == (1, 0)
    marks = figure("phase", PHASE).data
    assert [(m.name, m.x[0], m.y[0]) for m in marks[:2]] == [
        ("iwl", "0.0", "0.0"),
        ("iwl", "0.0", "0.0"),
    ]
    assert [m.marker.color for m in marks] == [OUTCOME_COLOURS[r] for r in table.column("label")]
    assert [m.marker.line.width for m in marks] == [0, 0, 3, 3, 0, 0]


def test_a_causal_graph_draws_edges_strong_and_the_rest_faint() -> None:
    table = figure_table("causal", GRAPH)
    assert [(r["parent"], r["child"], r["edge"]) for r in table] == [
        (0, 1, True),
        (0, 2, True),
        (1, 2, False),
    ]
    lines = figure("causal", GRAPH, backend="matplotlib").axes[0].lines
    ends = [(line.get_xdata()[0], line.get_xdata()[-1]) for line in lines[:3]]
    assert ends == [(0, 1), (0, 2), (1, 2)]
    widths = [line.get_linewidth() for line in lines[:3]]
    assert widths[0] > widths[1] > widths[2]
    one, two, faint, nodes = figure("causal", GRAPH).data
    assert "0 → 1, head 0<br>confidence 0.90, effect 4.00, p 0.001" in one.text[0]
    assert two.x[-1] == 2
    assert faint.x[0] == 1
    assert list(nodes.x) == [0, 1, 2]


def test_an_arc_starts_and_ends_on_the_line() -> None:
    xs, ys = arc(2, 6)
    assert (xs[0], xs[-1], ys[0], ys[-1]) == (2, 6, 0, 0)
    assert max(ys) == pytest.approx(2**0.75)


def test_methods_are_ranked_and_what_did_not_run_is_counted() -> None:
    table = figure_table("leaderboard", SUITE)
    edges = [r for r in table if r["granularity"] == "edge"]
    assert [(r["method"], r["auc"], r["ok"], r["declined"]) for r in edges] == [
        ("slow", 1.0, 1, 1),
        ("quick", pytest.approx(0.7), 2, 0),
        ("poor", pytest.approx(0.5), 2, 0),
    ]
    never = next(r for r in table if r["method"] == "never")
    assert (never["auc"], never["low"], never["declined"]) == (None, None, 1)
    left = figure("leaderboard", SUITE, backend="matplotlib").axes[0]
    assert [t.get_text() for t in left.get_yticklabels()] == ["slow", "quick", "poor"]
    assert list(left.lines[0].get_xdata()) == pytest.approx([1.0, 0.7, 0.5])
    shown = figure("leaderboard", SUITE).data[0]
    assert list(shown.y) == ["slow", "quick", "poor"]
    assert list(shown.x) == pytest.approx([1.0, 0.7, 0.5])
    assert list(shown.error_x.array) == pytest.approx([0.0, 0.1, 0.1])


def test_the_front_joins_what_nothing_dominates() -> None:
    table = figure_table("pareto", SUITE)
    assert {r["method"]: r["front"] for r in table} == {"quick": True, "slow": True, "poor": False}
    axis = figure("pareto", SUITE, backend="matplotlib").axes[0]
    assert list(axis.lines[0].get_xdata()) == [0.1, 10.0]
    assert sorted(t.get_text() for t in axis.texts) == ["poor", "quick", "slow"]
    drawn = figure("pareto", SUITE)
    assert list(drawn.data[0].x) == [0.1, 10.0]
    places = {a.text: (a.x, a.y) for a in drawn.layout.annotations}
    assert places["slow"] == (pytest.approx(1.0), 1.0)


def test_every_case_has_its_cell_and_gaps_stay_empty() -> None:
    table = figure_table("cases", SUITE)
    assert len(table) == len(SUITE)
    image = figure("cases", SUITE, backend="matplotlib").axes[0]
    assert [t.get_text() for t in image.get_yticklabels()] == [
        "a/zero/edge",
        "b/zero/edge",
        "a/zero/head",
    ]
    grid = figure("cases", SUITE).data[0]
    assert list(grid.x) == ["slow", "quick", "poor", "never"]
    assert list(grid.z[1]) == [None, 0.6, 0.4, None]
    drawn = image.images[0].get_array().filled(math.nan)
    assert math.isnan(drawn[1][0])
    assert drawn[1][1] == 0.6


def test_controls_and_suites_without_a_run_are_drawn_too() -> None:
    control = {**run("c-control/zero/edge", "slow", None), "status": "ok", "source": "control"}
    only = {**control, "method": "alone"}
    assert len(figure_table("cases", [*SUITE, control, only])) == len(SUITE)
    declined = [run("a/zero/edge", "never", None)]
    for name in ("leaderboard", "pareto", "cases"):
        assert figure(name, declined, backend="matplotlib").axes
        assert figure(name, declined) is not None


def test_labels_of_close_points_do_not_lie_on_each_other() -> None:
    points = [(300.0, 100.0), (304.0, 103.0), (298.0, 97.0), (310.0, 100.0)]
    places = label_places(points, ["method"] * 4, 620, 380)
    wide, tall = 6.2 * len("method") + 4, 13
    for i, a in enumerate(places):
        assert 0 <= a[0] <= 620 - wide
        for b in places[:i]:
            assert abs(a[0] - b[0]) >= wide or abs(a[1] - b[1]) >= tall


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("phase", [], "got no rows; wanted rows of imir_detect.theory.competition.outcome_row"),
        ("phase", [{"f_r": 1}], "got no f_v, b, predicted, trained"),
        ("pareto", [{"case": "a"}], "wanted rows of imir_detect.benchmark.results.read_rows"),
        ("phase", "text", "drawn from something else; got str; wanted a list of rows"),
        ("causal", [1], "drawn from something else; got list; wanted CausalGraph"),
    ],
)
def test_other_rows_are_refused(name: str, given: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        figure_table(name, given)


def test_a_graph_without_edges_still_has_its_picture() -> None:
    empty = CausalGraph(3, (), GRAPH.candidates, (0.1,), "weights")
    assert len(figure("causal", empty, backend="matplotlib").axes[0].lines) == 4
