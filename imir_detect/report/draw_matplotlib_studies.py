"""Figures of studies for papers. One function a figure, as in draw_plotly_studies."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

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


def phase(table: Table) -> Figure:
    """Who wins: f_r across, f_v upward; columns predicted and trained, a line of panels each b.
    Cells near the border are framed."""
    bursts, rare, fresh = (sorted(set(table.column(name))) for name in ("b", "f_r", "f_v"))
    size = (2.2 + 1.7 * len(rare), 0.9 + 0.75 * len(fresh) * len(bursts))
    made = Figure(figsize=size, layout="constrained")
    axes = made.subplots(len(bursts), 2, sharex=True, sharey=True, squeeze=False)
    for row in table:
        axis = axes[bursts.index(row["b"])][OUTCOMES.index(row["outcome"])]
        x, y = rare.index(row["f_r"]), fresh.index(row["f_v"])
        axis.add_patch(
            Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, facecolor=OUTCOME_COLOURS[row["label"]],
                      edgecolor="#171922", linewidth=2.5 if row["on_border"] else 0)
        )  # fmt: skip
        axis.text(x, y, row["label"], color="white", ha="center", va="center", fontsize=9)
    for b, line in zip(bursts, axes, strict=True):
        for name, axis in zip(OUTCOMES, line, strict=True):
            axis.set_title(f"{name}, b = {b}", fontsize=10)
            axis.set_xticks(range(len(rare)), rare)
            axis.set_yticks(range(len(fresh)), fresh)
            axis.set_xlim(-0.5, len(rare) - 0.5)
            axis.set_ylim(-0.5, len(fresh) - 0.5)
            axis.spines[:].set_visible(False)
            axis.tick_params(length=0)
    made.supxlabel("f_r: share of rare blocks", fontsize=10)
    made.supylabel("f_v: variability", fontsize=10)
    return made


def causal(table: Table) -> Figure:
    """Positions on a line, an arc from parent to child each; grey: candidates that did not pass."""
    nodes = 1 + max(table.column("child"), default=0)
    made = Figure(figsize=(max(4.0, min(12.0, 0.42 * nodes)), 3.2), layout="constrained")
    axis = made.subplots()
    for row in table:
        style = {"color": ACCENT, "linewidth": 0.8 + 2 * row["confidence"], "zorder": 2}
        if not row["edge"]:
            style = {"color": FAINT, "linewidth": 0.5, "zorder": 1}
        axis.plot(*arc(row["parent"], row["child"]), **style)
    axis.plot(range(nodes), [0] * nodes, "o", color=ACCENT, markersize=5, zorder=3)
    axis.set_xticks(range(nodes))
    axis.tick_params(axis="x", length=0, labelsize=8 if nodes <= 32 else 5)
    axis.set_xlabel("position")
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
    return made


def leaderboard(table: Table) -> Figure:
    """Mean AUC and its interval by method, best on top; a panel each for edges and heads."""
    panels = grouped(table, "granularity")
    done = {name: [r for r in rows if r["auc"] is not None] for name, rows in panels.items()}
    most = max((len(rows) for rows in done.values()), default=1)
    made = Figure(figsize=(4.6 * max(1, len(done)), 1.1 + 0.24 * most), layout="constrained")
    axes = made.subplots(1, max(1, len(done)), squeeze=False)[0]
    for axis, (name, rows) in zip(axes, done.items(), strict=False):
        values = [row["auc"] for row in rows]
        below = [row["auc"] - row["low"] for row in rows]
        above = [row["high"] - row["auc"] for row in rows]
        axis.errorbar(values, range(len(rows)), xerr=(below, above), fmt="o", color=ACCENT,
                      markersize=5, elinewidth=1.4)  # fmt: skip
        axis.set_yticks(range(len(rows)), [row["method"] for row in rows])
        axis.invert_yaxis()
        axis.set_title(f"{name}s", fontsize=10)
        axis.set_xlabel("ROC AUC")
        axis.grid(axis="x", alpha=0.3)
    return made


def pareto(table: Table) -> Figure:
    """Accuracy against seconds a case; the line joins the methods that nothing dominates."""
    made = Figure(figsize=(7, 4.6), layout="constrained")
    axis = made.subplots()
    front = [row for row in table if row["front"]]
    axis.plot([r["seconds"] for r in front], [r["auc"] for r in front], color=ACCENT, lw=0.9)
    for row in table:
        colour = ACCENT if row["front"] else FAINT
        axis.plot(row["seconds"], row["auc"], "o", color=colour, markersize=6)
    axis.set_xscale("log")
    texts, width, height = table.column("method"), 620.0, 380.0
    points = pareto_points(table, width, height)
    for row, point, place in zip(table, points, label_places(points, texts, width, height),
                                 strict=True):  # fmt: skip
        shift = (0.72 * (place[0] - point[0]), 0.72 * (point[1] - place[1]))
        axis.annotate(row["method"], (row["seconds"], row["auc"]), xytext=shift, va="center",
                      textcoords="offset points", fontsize=8)  # fmt: skip
    axis.set_xlabel("median processor seconds a case")
    axis.set_ylabel("mean ROC AUC of edges")
    return made


def cases(table: Table) -> Figure:
    """AUC of every method on every case; white where a method declined or failed."""
    methods, names, grid = case_grid(table)
    nan = float("nan")
    made = Figure(figsize=(3.4 + 0.34 * len(methods), 1.6 + 0.16 * len(names)),
                  layout="constrained")  # fmt: skip
    axis = made.subplots()
    picture = [[nan if value is None else value for value in line] for line in grid]
    image = axis.imshow(picture, vmin=0, vmax=1, cmap="Purples", aspect="auto")
    axis.set_xticks(range(len(methods)), methods, rotation=90, fontsize=8)
    axis.set_yticks(range(len(names)), names, fontsize=6)
    made.colorbar(image, ax=axis, label="ROC AUC")
    return made
