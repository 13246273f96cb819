"""Figures of latent causal graphs: a tidy table first, then a drawing of that same table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from imir_detect._typing import Float, Tensor
from imir_detect.circuits.causal_graph import position_scores
from imir_detect.errors import InvalidArgumentError, UnsupportedModelError
from imir_detect.tasks.latent_graph import LatentGraph
from imir_detect.weights.model import ModelWeights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = list[dict[str, Any]]
PANELS = ("true graph", "attention", "difference")


def attention_table(weights: ModelWeights, graph: LatentGraph) -> Table:
    """One row a head, child and earlier-or-same position: what is true, and what is attended to.

    {"head", "child", "position", "true", "attention", "difference"}: `true` 1 on edges, else 0;
    `attention` of layer 0 between positions (softmax of the scores averaged over tokens), and
    `difference` = attention - true. With k heads and k parents every head is held against the
    parent (first, second, ..) that it attends to most, each parent taken once, in order of heads.
    """
    size = len(graph)
    if size > weights.n_ctx:
        raise InvalidArgumentError(
            "the graph has more nodes than the model has positions",
            got=f"{size} nodes, {weights.n_ctx} positions",
            wanted="a graph that fits",
            todo="pass the graph that the model was trained on",
        )
    scores = position_scores(weights, size)
    future = torch.ones(size, size, dtype=torch.bool).triu(1)
    attention = scores.masked_fill(future, -torch.inf).softmax(-1)
    table: Table = []
    for head, which in enumerate(_parent_of_head(attention, graph)):
        for child in range(size):
            parents = graph.parents[child]
            for position in range(child + 1):
                true = float(which is not None and bool(parents) and position == parents[which])
                seen = float(attention[head, child, position])
                table.append(
                    {
                        "head": head,
                        "child": child,
                        "position": position,
                        "true": true,
                        "attention": seen,
                        "difference": seen - true,
                    }
                )
    return table


def draw_attention(table: Table) -> Figure:
    """True graph, attention and their difference, one row of panels a head. SVG, PDF: `savefig`."""
    heads = sorted({row["head"] for row in table})
    size = 1 + max(row["child"] for row in table)
    figure, axes = _new_figure(len(heads), 3, width=9.0, height=3.2 * len(heads))
    for line, head in zip(axes, heads, strict=True):
        for axis, name in zip(line, PANELS, strict=True):
            picture = torch.full((size, size), torch.nan)
            for row in table:
                if row["head"] == head:
                    column = "true" if name == "true graph" else name
                    picture[row["child"], row["position"]] = row[column]
            low, colours = (-1.0, "RdBu_r") if name == "difference" else (0.0, "Greys")
            image = axis.imshow(picture.numpy(), vmin=low, vmax=1.0, cmap=colours)
            axis.set_title(f"{name}, head {head}" if len(heads) > 1 else name)
            axis.set_xlabel("position attended to")
            axis.set_ylabel("position")
            figure.colorbar(image, ax=axis, shrink=0.7)
    return figure


def loss_table(
    history: Iterable[Mapping[str, float]], floors: Mapping[str, float], *, run: str = "model"
) -> Table:
    """Loss against training steps, and each floor as a level: {"series", "step", "loss"}.

    `history`: what `train_on_graph` returns; `floors`: say {"near-Bayes": .., "best two-layer
    circuit": ..} (`evaluate_on_graph`).
    """
    rows: Table = [{"series": run, "step": r["step"], "loss": r["loss"]} for r in history]
    steps = [float(row["step"]) for row in rows] or [0.0, 1.0]
    return rows + [
        {"series": name, "step": step, "loss": loss}
        for name, loss in floors.items()
        for step in (min(steps), max(steps))
    ]


def draw_lines(
    table: Table, x: str, y: str, series: str = "series", *, log_x: bool = False
) -> Figure:
    """Lines of `y` over `x`, one a value of `series`; levels of two points are dashed."""
    figure, axes = _new_figure(1, 1, width=5.0, height=3.5)
    axis = axes[0][0]
    for name in dict.fromkeys(row[series] for row in table):
        points = [(row[x], row[y]) for row in table if row[series] == name]
        level = len(points) == 2 and points[0][1] == points[1][1]
        across, up = zip(*points, strict=True)
        axis.plot(across, up, "--" if level else "-", label=str(name))
    if log_x:
        axis.set_xscale("log")
    axis.set_xlabel(x)
    axis.set_ylabel(f"{y} (nats)" if y == "loss" else y)
    axis.legend()
    return figure


def share_table(measured: Iterable[Mapping[str, Any]]) -> Table:
    """Share of parents right against sequences used: {"series", "sequences", "share right"}.

    `measured`: rows with "S", "edges" and one "right_N" for every number N of sequences, as
    `benchmarks/paper/causal_gradient.py` writes them.
    """
    sums: dict[tuple[str, int], list[float]] = {}
    for row in measured:
        for column, value in row.items():
            if column.startswith("right_"):
                entry = sums.setdefault((f"S = {row['S']}", int(column[6:])), [0.0, 0.0])
                entry[0] += float(value)
                entry[1] += float(row["edges"])
    return [
        {"series": name, "sequences": n, "share right": right / edges}
        for (name, n), (right, edges) in sums.items()
    ]


def _parent_of_head(
    attention: Float[Tensor, "head pos pos"], graph: LatentGraph
) -> Sequence[int | None]:
    """Which of a node's parents each head is for; None for a head beyond the k-th."""
    free = list(range(graph.n_parents if graph.children else 0))
    which: list[int | None] = []
    for table in attention:
        if not free:
            which.append(None)
            continue
        total = {m: sum(float(table[c, graph.parents[c][m]]) for c in graph.children) for m in free}
        best = max(free, key=total.__getitem__)
        free.remove(best)
        which.append(best)
    return which


def _new_figure(rows: int, columns: int, *, width: float, height: float) -> tuple[Figure, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedModelError(
            "drawing needs matplotlib",
            got="no such module",
            wanted="the extra 'report'",
            todo="pip install 'imir-detect[report]'",
        ) from error
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)
