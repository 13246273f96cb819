"""Figures for papers: `savefig` writes SVG and PDF. One function a figure, as in draw_plotly."""

from __future__ import annotations

import math
import re
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Circle, PathPatch, Rectangle
from matplotlib.path import Path

from imir_detect.report.draw_matplotlib_studies import (  # noqa: F401  (figures by name)
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


def graph(report: Report, *, circuit: int = 0) -> Figure:
    """One circuit: heads as discs, edges as the page draws them."""
    drawing = draw_graph(report)
    made = Figure(figsize=(drawing.width / 90, drawing.height / 90), layout="constrained")
    axis = made.subplots()
    for edge in (e for e in drawing.edges if e.circuit == circuit):
        style = {"color": PORT_COLOURS[edge.port], "linewidth": edge.width, "fill": False}
        style |= {"linestyle": "--" if edge.negative else "-", "alpha": 0.85 if edge.label else 0.2}
        axis.add_patch(PathPatch(svg_path(edge.path), zorder=1, **style))
        if edge.label:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.9}
            axis.text(*edge.at, edge.label, color=PORT_COLOURS[edge.port], ha="center", va="center",
                      fontsize=8, bbox=box, zorder=3)  # fmt: skip
    for head in drawing.heads:
        inside = circuit in head.member
        radius = drawing.radius if inside or not drawing.compact else 4
        face = "#e9ebfc" if inside else "white"
        axis.add_patch(Circle((head.x, head.y), radius, facecolor=face, zorder=2,
                              edgecolor="#4f5bd0" if inside else "#a9afbf"))  # fmt: skip
        if inside or not drawing.compact:
            axis.text(head.x, head.y, head.name, ha="center", va="center", fontsize=7, zorder=4)
    for text, y in (("logits", drawing.bars[0]), ("embeddings", drawing.bars[1])):
        axis.text((drawing.left + drawing.right) / 2, y, text, ha="center", va="center", fontsize=8,
                  color="#565c6c")  # fmt: skip
    axis.set_xlim(0, drawing.width)
    axis.set_ylim(drawing.height, 0)
    axis.set_aspect("equal")
    axis.set_axis_off()
    return made


def svg_path(text: str) -> Path:
    """A path of the commands M, L, V and C, absolute, as matplotlib's."""
    points: list[tuple[float, float]] = []
    codes: list[Any] = []
    for command, numbers in re.findall(r"([MLVC])([^MLVC]*)", text):
        values = [float(v) for v in numbers.split()]
        if command == "V":
            values = [points[-1][0], values[0]]
        points += zip(values[::2], values[1::2], strict=True)
        code = {"M": Path.MOVETO, "L": Path.LINETO, "V": Path.LINETO, "C": Path.CURVE4}[command]
        codes += [code] * (len(values) // 2)
    return Path(points, codes)


def roles(table: Table) -> Figure:
    """Heads by measure, shares from 0 to 1; undefined entries stay white."""
    measures = list(dict.fromkeys(table.column("measure")))
    nodes = list(dict.fromkeys(table.column("node")))
    values = {(row["node"], row["measure"]): row["value"] for row in table}
    picture = [[_or_nan(values[node, m]) for m in measures] for node in nodes]
    made = Figure(figsize=(6.5, 1.4 + 0.24 * len(nodes)), layout="constrained")
    axis = made.subplots()
    image = axis.imshow(picture, vmin=0, vmax=1, cmap="Purples", aspect="auto")
    axis.set_xticks(range(len(measures)), [m.replace("_", " ") for m in measures], rotation=25)
    axis.set_yticks(range(len(nodes)), nodes)
    made.colorbar(image, ax=axis, label="share")
    return made


def profiles(table: Table) -> Figure:
    """Attention by distance, one panel a head in the model's own shape."""
    layers = 1 + max(table.column("layer"), default=0)
    heads = 1 + max(table.column("head"), default=0)
    made = Figure(figsize=(1.6 + 1.5 * heads, 1.0 + 1.2 * layers), layout="constrained")
    axes = made.subplots(layers, heads, sharex=True, sharey=True, squeeze=False)
    for node, rows in grouped(table, "node").items():
        axis = axes[layers - 1 - rows[0]["layer"]][rows[0]["head"]]
        axis.plot([r["back"] for r in rows], [r["attention"] for r in rows], color="#4f5bd0")
        axis.set_title(node, fontsize=8)
    made.supxlabel("tokens back")
    made.supylabel("attention")
    return made


def mosaic(table: Table) -> Figure:
    """One square a model, in the order given, row by row; its colour is the verdict."""
    columns = math.ceil(math.sqrt(len(table)))
    lines = math.ceil(len(table) / columns)
    made = Figure(figsize=(1.5 + 1.1 * columns, 0.4 + 0.8 * lines), layout="constrained")
    axis = made.subplots()
    for i, row in enumerate(table):
        line, column = divmod(i, columns)
        square = Rectangle((column, line), 0.94, 0.94, color=LABEL_COLOURS[row["label"]])
        axis.add_patch(square)
        axis.text(column + 0.47, line + 0.47, f"{row['model'][:14]}\n{row[row['label']]:.2f}",
                  ha="center", va="center", color="white", fontsize=7)  # fmt: skip
    for label in grouped(table, "label"):
        axis.scatter([], [], marker="s", color=LABEL_COLOURS[label], label=label)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axis.set_xlim(0, columns)
    axis.set_ylim(lines, 0)
    axis.set_aspect("equal")
    axis.set_axis_off()
    return made


def trajectories(table: Table) -> Figure:
    """One line a series over training steps."""
    made = Figure(figsize=(5.5, 3.6), layout="constrained")
    axis = made.subplots()
    for name, rows in grouped(table, "series").items():
        axis.plot([r["step"] for r in rows], [r["value"] for r in rows], label=name)
    axis.set_xlabel("step")
    axis.set_ylabel("nats")
    axis.legend()
    return made


def elimination(table: Table) -> Figure:
    """Loss and accuracy while directions are removed, and the budget."""
    made = Figure(figsize=(5.5, 3.6), layout="constrained")
    axis = made.subplots()
    for name in ("loss", "accuracy"):
        axis.plot(table.column("removed"), table.column(name), label=name)
    axis.plot(
        table.column("removed"), table.column("budget"), "--", color="#6b7280", label="budget"
    )
    axis.set_xlabel("directions removed")
    axis.legend()
    return made


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
