"""Tidy tables and their layout: numbers stand where they belong."""

from dataclasses import replace
from typing import Any

import pytest
from report_cases import big_report, circuit

from imir_detect.report.layout import draw_graph
from imir_detect.report.tables import (
    graph_edges,
    graph_nodes,
    profile_table,
    role_table,
    verdict_table,
)
from imir_detect.report.walls import draw_maps, draw_profiles, shade
from imir_detect.result import Table


def test_an_edges_effect_is_the_coordinate_that_it_makes() -> None:
    edges = [
        ((0, 0), (1, 0), "K"),
        ((0, 0), (1, 0), "Q"),
        ((0, 0), (1, 0), "V"),
        ((1, 0), "output", "out"),
    ]
    rows = [
        ("match", 1, 0, "q:direct k:L0H0", "identity", 1.0, 0.1, 0.0, 0.0),
        ("match", 1, 0, "q:L0H0 k:direct", "identity", 2.0, 0.1, 0.0, 0.0),
        ("copy", 1, 0, "L0H0>L1H0", "identity", 3.0, 0.1, 0.0, 0.0),
        ("copy", 1, 0, "L1H0", "identity", 4.0, 0.1, 0.0, 0.0),
        ("associate", 1, 0, "L0H0>L1H0", "association", 5.0, 0.1, 0.0, 0.0),
        ("associate", 1, 0, "L1H0", "association", 6.0, 0.1, 0.0, 0.0),
        ("associate", None, None, "direct", "association", 7.0, 0.1, 0.0, 0.0),
    ]
    base = big_report(2, 1, 2)
    heads = [(0, 0), (1, 0)]
    report = replace(
        base,
        coordinates=Table(base.coordinates.columns, rows),
        circuits=(
            circuit("induction", heads, edges, 0.9),
            circuit("in_weights", heads, [*edges, ("embed", "output", "out")], 0.8),
        ),
    )
    table = graph_edges(report)
    inner = [row for row in table if row["source"] != "embed"]
    assert [row["effect"] for row in inner] == [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 5.0, 6.0]
    direct = [row for row in table if row["source"] == "embed" and row["target"] == "output"]
    assert [(row["unit"], row["effect"]) for row in direct] == [("associate", 7.0)]
    into = [row for row in table if row["source"] == "embed" and row["target"] != "output"]
    assert {row["effect"] for row in into} == {None}
    drawn = {(e.circuit, e.port): e for e in draw_graph(report).edges if e.source == "L0H0"}
    assert drawn[0, "K"].label == "K 1.0"
    assert drawn[0, "K"].width == pytest.approx(1.3 + 3.2 * 1 / 4)


def test_layers_lie_above_each_other_and_no_two_heads_meet() -> None:
    drawing = draw_graph(big_report())
    places = {(h.x, h.y) for h in drawing.heads}
    assert len(places) == 144
    for head in drawing.heads:
        assert drawing.left < head.x < drawing.right
        assert drawing.bars[0] < head.y < drawing.bars[1]
    by_name = {h.name: h for h in drawing.heads}
    assert by_name["L3H0"].y < by_name["L2H0"].y
    assert by_name["L3H1"].x > by_name["L3H0"].x
    assert by_name["L2H3"].member == (0, 1)


def test_labels_of_one_circuit_do_not_cover_each_other(shipped: dict[str, Any]) -> None:
    for name in ("icl", "mixed"):
        edges = [e for e in draw_graph(shipped[name][1]).edges if e.label and e.circuit == 0]
        assert len(edges) > 3
        places = [e.at for e in edges]
        for i, (x, y) in enumerate(places):
            for other in places[:i]:
                assert abs(x - other[0]) > 43 or abs(y - other[1]) > 19


def test_a_negative_effect_has_a_minus_sign_and_a_dash() -> None:
    edges = [e for e in draw_graph(big_report()).edges if e.source == "L2H3" and e.port == "V"]
    (row,) = [r for r in graph_edges(big_report()) if r["source"] == "L2H3" and r["port"] == "V"]
    assert row["effect"] < 0
    assert edges[0].negative
    assert edges[0].label == f"V \u2212{-row['effect']:.1f}"


def test_long_tables_hold_every_head_once_a_measure(shipped: dict[str, Any]) -> None:
    report = shipped["icl"][1]
    assert len(role_table(report)) == 4 * 6
    assert graph_nodes(report).column("node") == ["L0H0", "L0H1", "L1H0", "L1H1"]
    profiles = profile_table(report)
    assert len(profiles) == len(report.profiles) == 4 * 17
    assert profiles[0]["node"] == "L0H0"


def test_verdicts_side_by_side(shipped: dict[str, Any]) -> None:
    table = verdict_table({name: report for name, (_, report) in shipped.items()})
    assert table.column("model") == table.column("label") == ["icl", "iwl", "mixed", "none"]
    assert [strength > 0.5 for strength in table.column("in_context")] == [True, False, True, False]
    assert [strength > 0.5 for strength in table.column("in_weights")] == [False, True, True, False]
    assert table[3]["strongest"] is None


def test_shades_and_peaks() -> None:
    assert [shade(v) for v in (None, -1.0, 0.0, 0.1, 0.999, 1.0)] == [0, 0, 0, 1, 9, 9]
    report = big_report(3, 6, 8)
    rows = [(*r[:3], 0.95 if r[:3] == (2, 3, 1) else r[3] / 2) for r in report.profiles.rows]
    report = replace(report, profiles=Table(report.profiles.columns, rows))
    wall = draw_profiles(report)
    assert not wall.large
    cell = next(c for c in wall.cells if c.name == "L2H3")
    assert cell.text == "0.95 at 1 back"
    assert wall.top == 1.0
    assert cell.peak[1] == pytest.approx(wall.up - 3 - 0.95 * (wall.up - 9), abs=0.05)
    maps = draw_maps(report)
    assert [m.title for m in maps][:2] == ["previous token", "duplicate token"]
    assert {c.y for c in maps[0].cells if c.name.startswith("L2")} == {0.0}  # last layer on top
