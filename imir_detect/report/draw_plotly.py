"""Figures for notebooks and pages: hover shows the numbers. One function a figure."""

from __future__ import annotations

import math

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from imir_detect.report.draw_plotly_studies import (  # noqa: F401  (figures by name)
    cases,
    causal,
    leaderboard,
    pareto,
    phase,
)
from imir_detect.report.layout import draw_graph
from imir_detect.report.tables import LABEL_COLOURS, PORT_COLOURS, grouped
from imir_detect.result import Report
from imir_detect.table import Table


def graph(report: Report, *, circuit: int = 0) -> go.Figure:
    """One circuit: heads as points, edges as the page draws them."""
    drawing = draw_graph(report)
    edges = [e for e in drawing.edges if e.circuit == circuit]
    shapes = [
        {
            "type": "path",
            "path": e.path,
            "line": {
                "color": PORT_COLOURS[e.port],
                "width": e.width,
                "dash": "dash" if e.negative else "solid",
            },
            "opacity": 0.3 if not e.label else 0.85,
            "layer": "below",
        }
        for e in edges
    ]
    heads = drawing.heads
    inside = [circuit in h.member for h in heads]
    made = go.Figure(
        go.Scatter(
            x=[h.x for h in heads],
            y=[h.y for h in heads],
            text=[h.name for h in heads],
            customdata=[h.role for h in heads],
            mode="markers+text",
            marker={
                "opacity": 1,
                "size": [2 * drawing.radius if k else 10 for k in inside],
                "color": ["#e9ebfc" if k else "#a9afbf" for k in inside],
                "line": {"color": "#4f5bd0", "width": [2 if k else 0 for k in inside]},
            },
            textfont={"size": [11 if k else 1 for k in inside]},
            hovertemplate="%{text}<br>%{customdata}<extra></extra>",
        )
    )
    labelled = [e for e in edges if e.label]
    made.add_scatter(
        x=[e.at[0] for e in labelled],
        y=[e.at[1] for e in labelled],
        text=[e.said for e in labelled],
        mode="markers",
        marker={"size": 18, "opacity": 0},
        hovertemplate="%{text}<extra></extra>",
    )
    for e in labelled:
        colour = {"color": PORT_COLOURS[e.port]}
        made.add_annotation(x=e.at[0], y=e.at[1], text=e.label, showarrow=False, font=colour,
                            bgcolor="white", borderpad=1)  # fmt: skip
    hidden = {"visible": False}
    made.update_layout(
        shapes=shapes,
        showlegend=False,
        xaxis={**hidden, "range": [0, drawing.width]},
        yaxis={**hidden, "range": [drawing.height, 0], "scaleanchor": "x"},
        template="plotly_white",
    )
    return made


def roles(table: Table) -> go.Figure:
    """Heads by measure, shares from 0 to 1."""
    measures = list(dict.fromkeys(table.column("measure")))
    nodes = list(dict.fromkeys(table.column("node")))
    values = {(row["node"], row["measure"]): row["value"] for row in table}
    made = go.Figure(
        go.Heatmap(
            z=[[values[node, m] for m in measures] for node in nodes],
            x=[m.replace("_", " ") for m in measures],
            y=nodes,
            zmin=0,
            zmax=1,
            colorscale="Purples",
            hovertemplate="%{y} %{x}: %{z:.2f}<extra></extra>",
        )
    )
    made.update_layout(template="plotly_white", yaxis={"autorange": "reversed"})
    return made


def profiles(table: Table) -> go.Figure:
    """Attention by distance, one panel a head in the model's own shape."""
    layers = 1 + max(table.column("layer"), default=0)
    heads = 1 + max(table.column("head"), default=0)
    titles = [f"L{layers - 1 - i // heads}H{i % heads}" for i in range(layers * heads)]
    made = make_subplots(layers, heads, shared_xaxes=True, shared_yaxes=True,
                         subplot_titles=titles)  # fmt: skip
    for node, rows in grouped(table, "node").items():
        layer, head = rows[0]["layer"], rows[0]["head"]
        made.add_scatter(
            x=[row["back"] for row in rows],
            y=[row["attention"] for row in rows],
            name=node,
            line={"color": "#4f5bd0"},
            row=layers - layer,
            col=head + 1,
            hovertemplate="%{x} back: %{y:.2f}<extra>" + node + "</extra>",
        )
    made.update_layout(template="plotly_white", showlegend=False)
    return made


def mosaic(table: Table) -> go.Figure:
    """One square a model, in the order given, row by row; its colour is the verdict."""
    columns = math.ceil(math.sqrt(len(table)))
    place = {row["model"]: divmod(i, columns) for i, row in enumerate(table)}
    made = go.Figure()
    for label, rows in grouped(table, "label").items():
        made.add_scatter(
            x=[place[row["model"]][1] for row in rows],
            y=[place[row["model"]][0] for row in rows],
            text=[row["model"] for row in rows],
            customdata=[[row[label], row["in_context"], row["in_weights"]] for row in rows],
            mode="markers",
            name=label,
            marker={"color": LABEL_COLOURS[label], "size": 44, "symbol": "square"},
            hovertemplate="%{text}: %{customdata[0]:.2f}<br>context %{customdata[1]:.2f}, weights "
            "%{customdata[2]:.2f}<extra>" + label + "</extra>",
        )
    made.update_layout(
        template="plotly_white",
        xaxis={"visible": False, "range": [-0.7, columns - 0.3]},
        yaxis={"visible": False, "autorange": "reversed", "scaleanchor": "x"},
    )
    return made


def trajectories(table: Table) -> go.Figure:
    """One line a series over training steps."""
    made = go.Figure()
    for name, rows in grouped(table, "series").items():
        made.add_scatter(x=[r["step"] for r in rows], y=[r["value"] for r in rows], name=name)
    made.update_layout(template="plotly_white", xaxis={"title": "step"}, yaxis={"title": "nats"})
    return made


def elimination(table: Table) -> go.Figure:
    """Loss and accuracy while directions are removed, and the budget."""
    made = go.Figure()
    for name, dash in (("loss", "solid"), ("accuracy", "solid"), ("budget", "dash")):
        line = {"dash": dash, "color": "#6b7280"} if dash == "dash" else {}
        made.add_scatter(x=table.column("removed"), y=table.column(name), name=name, line=line)
    made.update_layout(template="plotly_white", xaxis={"title": "directions removed"})
    return made
