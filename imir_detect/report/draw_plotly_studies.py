"""Figures of studies for notebooks and pages. One function a figure, as in draw_plotly."""

from __future__ import annotations

import math

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from imir_detect.report.studies import (
    OUTCOME_COLOURS,
    OUTCOMES,
    arc,
    case_grid,
    label_places,
    pareto_points,
)
from imir_detect.report.tables import grouped
from imir_detect.table import Table

ACCENT, FAINT = "#4f5bd0", "#a9afbf"


def phase(table: Table) -> go.Figure:
    """Who wins: f_r across, f_v upward; columns predicted and trained, a line of panels each b."""
    bursts = sorted(set(table.column("b")))
    titles = [f"{name}, b = {b}" for b in bursts for name in OUTCOMES]
    made = make_subplots(len(bursts), 2, shared_yaxes=True, subplot_titles=titles)
    seen: set[str] = set()
    for row in table:
        label = row["label"]
        made.add_scatter(
            x=[str(row["f_r"])],
            y=[str(row["f_v"])],
            mode="markers+text",
            text=[label],
            textfont={"color": "white", "size": 11},
            marker={"symbol": "square", "size": 42, "color": OUTCOME_COLOURS[label],
                    "line": {"width": 3 if row["on_border"] else 0, "color": "#171922"}},
            name=label,
            legendgroup=label,
            showlegend=label not in seen,
            hovertemplate=f"f_r %{{x}}, f_v %{{y}}<br>context {row['icl']:.2f}, weights "
            f"{row['iwl']:.2f}<extra>{label}</extra>",
            row=1 + bursts.index(row["b"]),
            col=1 + OUTCOMES.index(row["outcome"]),
        )  # fmt: skip
        seen.add(label)
    for axis, name, values in (("x", "f_r", "f_r"), ("y", "f_v", "f_v")):
        order = [str(v) for v in sorted(set(table.column(values)))]
        update = made.update_xaxes if axis == "x" else made.update_yaxes
        update(type="category", categoryorder="array", categoryarray=order, title_text=name)
    made.update_layout(template="plotly_white", height=120 + 250 * len(bursts))
    return made


def causal(table: Table) -> go.Figure:
    """Positions on a line, an arc from parent to child each; grey: candidates that did not pass."""
    made = go.Figure()
    weak_x: list[float | None] = []
    weak_y: list[float | None] = []
    for row in table:
        xs, ys = arc(row["parent"], row["child"])
        if not row["edge"]:
            weak_x += [*xs, None]
            weak_y += [*ys, None]
            continue
        head = "" if row["head"] is None else f", head {row['head']}"
        said = (
            f"{row['parent']} → {row['child']}{head}<br>confidence {row['confidence']:.2f}, "
            f"effect {row['effect']:.2f}, p {row['p_value']:.3g}"
        )
        made.add_scatter(
            x=xs, y=ys, mode="lines", hoverinfo="text", text=[said] * len(xs),
            line={"color": ACCENT, "width": 1 + 3 * row["confidence"]},
        )  # fmt: skip
    faint = {"color": FAINT, "width": 0.7}
    made.add_scatter(x=weak_x, y=weak_y, mode="lines", line=faint, hoverinfo="skip")
    nodes = list(range(1 + max(table.column("child"), default=0)))
    made.add_scatter(
        x=nodes, y=[0] * len(nodes), mode="markers+text", text=[str(n) for n in nodes],
        textposition="bottom center", marker={"color": ACCENT, "size": 9}, hoverinfo="skip",
    )  # fmt: skip
    made.update_layout(
        template="plotly_white", showlegend=False, yaxis={"visible": False},
        xaxis={"title": "position", "showgrid": False, "zeroline": False, "showticklabels": False},
    )  # fmt: skip
    return made


def leaderboard(table: Table) -> go.Figure:
    """Mean AUC and its interval by method, best on top; a panel each for edges and heads."""
    panels = grouped(table, "granularity")
    made = make_subplots(1, len(panels), subplot_titles=[f"{name}s" for name in panels],
                         horizontal_spacing=0.25)  # fmt: skip
    most = 1
    for column, rows in enumerate(panels.values(), 1):
        done = [row for row in rows if row["auc"] is not None]
        most = max(most, len(done))
        made.add_scatter(
            x=[row["auc"] for row in done],
            y=[row["method"] for row in done],
            mode="markers",
            marker={"color": ACCENT, "size": 9},
            error_x={
                "type": "data", "symmetric": False, "thickness": 1.4,
                "array": [row["high"] - row["auc"] for row in done],
                "arrayminus": [row["auc"] - row["low"] for row in done],
            },
            customdata=[[row["ok"], row["declined"], row["failed"]] for row in done],
            hovertemplate="%{y}: %{x:.3f}<br>%{customdata[0]} runs, %{customdata[1]} declined, "
            "%{customdata[2]} failed<extra></extra>",
            row=1, col=column,
        )  # fmt: skip
    made.update_xaxes(title_text="ROC AUC (mean, 95 % bootstrap over cases)")
    made.update_yaxes(autorange="reversed")
    made.update_layout(template="plotly_white", showlegend=False, height=140 + 24 * most)
    return made


def pareto(table: Table) -> go.Figure:
    """Accuracy against seconds a case; the line joins the methods that nothing dominates."""
    front = [row for row in table if row["front"]]
    made = go.Figure(
        go.Scatter(
            x=[row["seconds"] for row in front],
            y=[row["auc"] for row in front],
            mode="lines",
            line={"color": ACCENT, "width": 1},
            hoverinfo="skip",
        )
    )
    made.add_scatter(
        x=table.column("seconds"),
        y=table.column("auc"),
        mode="markers",
        marker={"color": [ACCENT if k else FAINT for k in table.column("front")], "size": 10},
        text=table.column("method"),
        customdata=table.column("passes"),
        hovertemplate="%{text}: AUC %{y:.3f}, %{x:.3g} s, %{customdata:.0f} passes<extra></extra>",
    )
    width, height = 620.0, 380.0
    points = pareto_points(table, width, height)
    texts = table.column("method")
    for point, place, text in zip(points, label_places(points, texts, width, height), texts,
                                  strict=True):  # fmt: skip
        made.add_annotation(
            x=math.log10(table.column("seconds")[texts.index(text)]),
            y=table.column("auc")[texts.index(text)],
            text=text, showarrow=False, xanchor="left", font={"size": 11},
            xshift=place[0] - point[0], yshift=point[1] - place[1],
        )  # fmt: skip
    made.update_layout(
        template="plotly_white", showlegend=False, width=760, height=480,
        xaxis={"type": "log", "title": "median processor seconds a case"},
        yaxis={"title": "mean ROC AUC of edges"},
    )  # fmt: skip
    return made


def cases(table: Table) -> go.Figure:
    """AUC of every method on every case; white where a method declined or failed."""
    methods, names, grid = case_grid(table)
    made = go.Figure(
        go.Heatmap(
            z=grid, x=methods, y=names, zmin=0, zmax=1, colorscale="Purples",
            hovertemplate="%{y}<br>%{x}: %{z:.2f}<extra></extra>",
        )
    )  # fmt: skip
    made.update_layout(template="plotly_white", yaxis={"autorange": "reversed"},
                       height=180 + 15 * len(names))  # fmt: skip
    return made
