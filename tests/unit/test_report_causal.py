"""Figures of causal graphs: the tables are right, and the drawings show those tables."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from imir_detect.errors import ImirError, InvalidArgumentError
from imir_detect.models.disentangled import DisentangledTransformer
from imir_detect.report.causal import (
    attention_table,
    draw_attention,
    draw_lines,
    loss_table,
    share_table,
)
from imir_detect.tasks.latent_graph import LatentGraph, chain, halves


def test_attention_of_a_flat_model_by_hand() -> None:
    table = attention_table(DisentangledTransformer(2, 4).to_weights(), chain(3))
    assert len(table) == 6
    by_place = {(row["child"], row["position"]): row for row in table}
    assert by_place[2, 1]["true"] == 1
    assert by_place[2, 1]["attention"] == pytest.approx(1 / 3)
    assert by_place[2, 1]["difference"] == pytest.approx(1 / 3 - 1)
    assert by_place[0, 0] == {
        "head": 0,
        "child": 0,
        "position": 0,
        "true": 0.0,
        "attention": 1.0,
        "difference": 1.0,
    }


def test_heads_are_held_against_the_parent_that_they_found() -> None:
    graph = halves(7)
    model = DisentangledTransformer(2, 7, (2, 1))
    with torch.no_grad():
        for child in graph.children:
            for head, which in ((0, 1), (1, 0)):  # the heads found them the other way round
                parent = graph.parents[child][which]
                model.attention[0][head, 2 + child, 2 + parent] = 30.0
    table = attention_table(model.to_weights(), graph)
    off = [row["difference"] for row in table if row["child"] in graph.children]
    assert max(abs(x) for x in off) < 1e-9


def test_drawings_show_their_tables(tmp_path: Path) -> None:
    table = attention_table(DisentangledTransformer(2, 5, (2, 1)).to_weights(), halves(5))
    figure = draw_attention(table)
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert titles[:3] == ["true graph, head 0", "attention, head 0", "difference, head 0"]
    shown = figure.axes[1].images[0].get_array()
    assert float(shown[3, 2]) == pytest.approx(0.25)
    figure.savefig(tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").read_text().startswith("<?xml")


def test_losses_are_drawn_beside_their_floors() -> None:
    history = [{"step": 100.0, "loss": 0.9}, {"step": 200.0, "loss": 0.7}]
    table = loss_table(history, {"near-Bayes": 0.6})
    assert table[-1] == {"series": "near-Bayes", "step": 200.0, "loss": 0.6}
    axis = draw_lines(table, "step", "loss").axes[0]
    assert [line.get_label() for line in axis.lines] == ["model", "near-Bayes"]
    assert [line.get_linestyle() for line in axis.lines] == ["-", "--"]
    assert axis.get_ylabel() == "loss (nats)"


def test_shares_are_summed_over_graphs() -> None:
    measured = [
        {"S": "3", "edges": "4", "right_64": "1", "right_256": "4"},
        {"S": "3", "edges": "6", "right_64": "4", "right_256": "6"},
    ]
    table = share_table(measured)
    assert [row["share right"] for row in table] == [0.5, 1.0]
    assert draw_lines(table, "sequences", "share right", log_x=True).axes[0].get_xscale() == "log"


def test_what_cannot_be_drawn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = DisentangledTransformer(2, 4).to_weights()
    with pytest.raises(InvalidArgumentError, match="got 9 nodes, 4 positions"):
        attention_table(weights, chain(9))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImirError, match=r"drawing needs matplotlib.*imir-detect\[report\]"):
        draw_attention(attention_table(weights, LatentGraph(((), ()))))
