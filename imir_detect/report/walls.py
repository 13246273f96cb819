"""Small multiples of all heads, laid out as the model is: maps of one measure, and profiles."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from imir_detect.report.tables import MEASURES, profile_table, role_table
from imir_detect.result import Report
from imir_detect.table import cell_text

STEPS = 10  # shades of a map
LARGEST = 16  # heads for which profiles are drawn large


@dataclass(frozen=True)
class Cell:
    """One head's place in a wall. Maps use `step`, profiles the paths and the peak."""

    name: str
    x: float
    y: float
    text: str
    step: int = 0
    area: str = ""
    curve: str = ""
    peak: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Wall:
    """Cells and the size of the whole. `said` is the wall in words."""

    title: str
    said: str
    width: float
    height: float
    across: float
    up: float
    cells: tuple[Cell, ...]
    large: bool = False
    top: float = 1.0

    @property
    def cell(self) -> float:
        """Side of a square cell."""
        return self.across


def shade(value: float | None) -> int:
    """The shade of a share in [0, 1]: 0 .. STEPS - 1."""
    return min(STEPS - 1, max(0, int((value or 0.0) * STEPS)))


def draw_maps(report: Report) -> tuple[Wall, ...]:
    """One map a measure, layers upward and heads across."""
    table = role_table(report)
    layers = 1 + max(table.column("layer"), default=0)
    heads = 1 + max(table.column("head"), default=0)
    side = 22.0
    walls = []
    for measure in MEASURES:
        rows = [row for row in table if row["measure"] == measure]
        cells = tuple(
            Cell(
                row["node"],
                side * row["head"],
                side * (layers - 1 - row["layer"]),
                cell_text(row["value"]),
                shade(row["value"]),
            )
            for row in rows
        )
        said = _largest((row["node"], row["value"] or 0.0) for row in rows)
        title = measure.replace("_", " ")
        walls.append(Wall(title, said, side * heads, side * layers, side, side, cells))
    return tuple(walls)


def draw_profiles(report: Report) -> Wall:
    """The profile of every head: attention upward, from 0 to `top` in all cells alike, by distance,
    0 back at the left."""
    curves: dict[str, list[float]] = {}
    place: dict[str, tuple[int, int]] = {}
    for row in profile_table(report):
        curves.setdefault(row["node"], []).append(row["attention"])
        place[row["node"]] = (row["layer"], row["head"])
    large = len(curves) <= LARGEST
    across, up, gap = (220.0, 110.0, 14.0) if large else (58.0, 36.0, 5.0)
    layers = 1 + max((layer for layer, _ in place.values()), default=0)
    heads = 1 + max((head for _, head in place.values()), default=0)
    most = max((max(values) for values in curves.values()), default=1.0)
    top = max(0.1, math.ceil(most * 10 - 1e-9) / 10)
    cells = []
    for name, values in curves.items():
        layer, head = place[name]
        x, y = head * (across + gap), (layers - 1 - layer) * (up + gap)
        cells.append(_profile(name, values, x, y, (across, up), 24.0 if large else 3.0, top))
    tops = ((name, max(values)) for name, values in curves.items())
    return Wall(
        "attention by distance",
        _largest(tops),
        heads * (across + gap) - gap,
        layers * (up + gap) - gap,
        across,
        up,
        tuple(cells),
        large,
        top,
    )


def _profile(
    name: str,
    values: list[float],
    x: float,
    y: float,
    size: tuple[float, float],
    head: float,
    top: float,
) -> Cell:
    across, up = size
    step = (across - 12) / max(1, len(values) - 1)

    def at(back: int) -> tuple[float, float]:
        return round(6 + back * step, 1), round(up - 3 - (up - 6 - head) * values[back] / top, 1)

    line = "L".join(f"{px} {py}" for px, py in map(at, range(len(values))))
    best = max(range(len(values)), key=values.__getitem__)
    end = at(len(values) - 1)[0]
    return Cell(
        name,
        x,
        y,
        f"{values[best]:.2f} at {best} back",
        area=f"M6 {up - 3}L{line}L{end} {up - 3}Z",
        curve=f"M{line}",
        peak=at(best),
    )


def _largest(values: Iterable[tuple[str, float]], most: int = 3) -> str:
    """The largest entries in words, for readers who do not see the picture."""
    top = sorted(values, key=lambda pair: -pair[1])[:most]
    return "largest " + ", ".join(f"{name} {value:.2f}" for name, value in top)
