"""Pages of studies: every edge and every method is there, hostile names stay text."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_cases import HOSTILE
from studies_cases import GRAPH, SUITE, run

from imir_detect.circuits.causal_graph import CausalGraph
from imir_detect.errors import InvalidArgumentError
from imir_detect.report.charts import course, scatter, ticks
from imir_detect.report.figures import figure_table
from imir_detect.report.plates import write_graph_page, write_leaderboard_page

pytest.importorskip("jinja2")


def words(page: str) -> str:
    body = re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body))


def test_the_graph_page_has_an_arc_a_candidate_and_says_what_it_rests_on(tmp_path: Path) -> None:
    page = write_graph_page(GRAPH, tmp_path / "a" / "g.html", name=HOSTILE[0]).read_text()
    assert HOSTILE[0] not in page
    assert page.count('<path class="edge"') == 2
    assert page.count('<path class="weak"') == 1
    assert "0 to 2, head 0: confidence 0.70, effect 3.00, p 0.004" in page
    text = words(page)
    assert "2 edges among 3 positions, read from the weights of layer 0." in text
    assert "As a rule a position depends on one other; 1 depends on none." in text
    assert "a note" in text
    unsure = replace(GRAPH, undecided=(0,))
    page = write_graph_page(unsure, tmp_path / "u.html").read_text()
    assert "all depend on some; of 1 it could not be told." in page


def test_a_model_without_a_graph_is_told_so(tmp_path: Path) -> None:
    empty = CausalGraph(3, (), (), (0.1,), "weights")
    page = write_graph_page(empty, tmp_path / "g.html").read_text()
    assert "No head stands out from noise, so there is no graph." in page
    assert "no edges" in page


def test_the_leaderboard_page_ranks_methods_and_says_what_was_not_run(tmp_path: Path) -> None:
    rows = [*SUITE, run("b/zero/edge", HOSTILE[0], None)]
    page = write_leaderboard_page(rows, tmp_path / "b.html").read_text()
    assert HOSTILE[0] not in page
    text = words(page)
    assert "5 circuit-discovery methods on 3 cases" in text
    edges = text[text.index("Edges") : text.index("Heads")]
    assert edges.index("slow") < edges.index("quick") < edges.index("poor")
    assert "slow 1 declined: too large for it" in text
    only = write_leaderboard_page([run("a/zero/edge", "never", None)], tmp_path / "d.html")
    assert "1 circuit-discovery method on 1 case" in words(only.read_text())
    with pytest.raises(InvalidArgumentError, match="these rows are not what the figure is drawn"):
        write_leaderboard_page([], tmp_path / "none.html")


def test_a_course_runs_from_corner_to_corner_below_its_level() -> None:
    chart = course([0.0, 1.0], x_name="x", y_name="y", top=1.0, level=(0.5, "half"))
    left, top, right, bottom = chart.frame
    assert chart.lines == (f"M{left} {bottom}L{right} {top}",)
    assert chart.levels == (((top + bottom) / 2, "half"),)
    assert ticks(0, 0) == [0.0]
    assert ticks(-3, 3) == [-2.0, 0.0, 2.0]


def test_marks_and_ticks_of_the_scatter_share_one_scale() -> None:
    chart = scatter(figure_table("pareto", SUITE))  # 0.1, 10 and 20 seconds
    by = {dot.name: dot for dot in chart.dots}
    at = {text: x for x, text in chart.x_ticks}
    assert at["0.1"] == pytest.approx(by["quick"].x, abs=0.1)
    assert at["10"] == pytest.approx(by["slow"].x, abs=0.1)
    assert [dot.name for dot in chart.dots if dot.strong] == ["quick", "slow"]
