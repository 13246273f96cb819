"""Plain charts for pages: lines, levels and dots in a frame with ticks, written as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from imir_detect.report.studies import label_places, pareto_points
from imir_detect.table import Table

Point = tuple[float, float]
LEFT, RIGHT, TOP, BOTTOM = 58.0, 16.0, 14.0, 42.0


@dataclass(frozen=True)
class Dot:
    """A mark with what it says on hover, and the name that stands beside it, if any."""

    x: float
    y: float
    said: str
    strong: bool = True
    name: str = ""
    name_at: Point = (0.0, 0.0)


@dataclass(frozen=True)
class Chart:
    """Sizes and places in pixels. `said` is the chart in words, for readers who do not see it."""

    said: str
    x_name: str
    y_name: str
    width: float
    height: float
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    lines: tuple[str, ...] = ()
    levels: tuple[tuple[float, str], ...] = ()
    dots: tuple[Dot, ...] = ()

    @property
    def frame(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the field."""
        return LEFT, TOP, self.width - RIGHT, self.height - BOTTOM


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from low to high, at most `most`.

    >>> ticks(0, 68), ticks(0.0, 0.3)
    ([0.0, 20.0, 40.0, 60.0], [0.0, 0.1, 0.2, 0.3])
    """
    span = max(high - low, 1e-12)
    step = 10.0 ** math.floor(math.log10(span / most))
    step *= next(f for f in (1, 2, 5, 10, 20) if span / (step * f) <= most - 1 + 1e-9)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + i) * step, 12) for i in range(max(1, count))]


def course(
    values: Sequence[float],
    *,
    x_name: str,
    y_name: str,
    top: float | None = None,
    level: tuple[float, str] | None = None,
) -> Chart:
    """Values by their index, from 0 upward, and a dashed level with its name."""
    width, height = 470.0, 250.0
    highest = top if top is not None else max([*values, level[0] if level else 0.0, 1e-12]) * 1.08
    x = _scale(0, max(1, len(values) - 1), LEFT, width - RIGHT)
    y = _scale(0, highest, height - BOTTOM, TOP)
    line = "L".join(f"{x(i):.1f} {y(v):.1f}" for i, v in enumerate(values))
    return Chart(
        said=f"{y_name} from {values[0]:.2f} to {values[-1]:.2f} over {len(values) - 1} steps",
        x_name=x_name,
        y_name=y_name,
        width=width,
        height=height,
        x_ticks=tuple((x(t), f"{t:g}") for t in ticks(0, max(1, len(values) - 1))),
        y_ticks=tuple((y(t), f"{t:g}") for t in ticks(0, highest)),
        lines=(f"M{line}",),
        levels=((y(level[0]), level[1]),) if level else (),
    )


def scatter(table: Table) -> Chart:
    """The table of `figure_table("pareto")`: AUC against seconds, logarithmic; names beside the
    marks, and a line through the methods that nothing dominates."""
    width, height = 760.0, 440.0
    field = (width - LEFT - RIGHT, height - TOP - BOTTOM)
    points = pareto_points(table, *field)
    names = table.column("method")
    places = label_places(points, names, *field)
    dots = tuple(
        Dot(
            x + LEFT,
            y + TOP,
            f"{row['method']}: AUC {row['auc']:.3f}, {row['seconds']:.3g} s, "
            f"{row['passes']:.0f} passes",
            row["front"],
            row["method"],
            (a + LEFT, b + TOP),
        )
        for row, (x, y), (a, b) in zip(table, points, places, strict=True)
    )
    front = "L".join(f"{d.x:.1f} {d.y:.1f}" for d in dots if d.strong)
    seconds, aucs = table.column("seconds"), table.column("auc")
    return Chart(
        said="accuracy against cost; nothing is both better and cheaper than "
        + ", ".join(d.name for d in dots if d.strong),
        x_name="median processor seconds a case",
        y_name="mean ROC AUC of edges",
        width=width,
        height=height,
        x_ticks=_logarithmic(seconds, [d.x for d in dots]),
        y_ticks=_linear(aucs, [d.y for d in dots]),
        lines=(f"M{front}",) if front else (),
        dots=dots,
    )


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: round(start + (value - low) * (end - start) / ((high - low) or 1.0), 1)


def _through(values: Sequence[float], places: Sequence[float]) -> Callable[[float], float]:
    """The scale that puts the smallest and the largest value where they were drawn."""
    low, high = min(values), max(values)
    return _scale(low, high, places[values.index(low)], places[values.index(high)])


def _linear(values: Sequence[float], places: Sequence[float]) -> tuple[tuple[float, str], ...]:
    if not values:
        return ()
    at = _through(values, places)
    return tuple((at(t), f"{t:g}") for t in ticks(min(values), max(values)))


def _logarithmic(values: Sequence[float], places: Sequence[float]) -> tuple[tuple[float, str], ...]:
    if not values:
        return ()
    powers = [math.log10(max(v, 1e-9)) for v in values]
    at = _through(powers, places)
    whole = range(math.ceil(min(powers)), math.floor(max(powers)) + 1)
    return tuple((at(p), f"{10.0**p:g}") for p in whole)
