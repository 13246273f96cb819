"""Where the circuit graph's nodes and edges lie on the page: layers upward, heads side by side.

Every head of the model has its place, whether a circuit names it or not, so that two circuits of
one model, or one circuit of two checkpoints, can be laid over each other. Edges enter a head at
three ports below it: query left, key middle, value right. An edge that passes other layers runs in
the gutter between two columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from imir_detect.coordinates.pathsum import EMBED, OUTPUT, Edge, name_of
from imir_detect.report.tables import graph_edges, graph_nodes
from imir_detect.result import Report
from imir_detect.table import rounded

PORT_PLACE = {"Q": -0.62, "K": 0.0, "V": 0.62}  # across, in radii
ALONG = (
    0.5,
    0.42,
    0.58,
    0.34,
    0.66,
    0.26,
    0.74,
    0.18,
    0.82,
)  # where a label is tried, along its edge
MOST_LABELS = 12  # with more edges than this, labels show for the chosen head only
Point = tuple[float, float]


@dataclass(frozen=True)
class DrawnHead:
    """A head's place; `member` lists the circuits, by index, that it belongs to."""

    name: str
    layer: int
    head: int
    role: str
    member: tuple[int, ...]
    x: float
    y: float


@dataclass(frozen=True)
class DrawnEdge:
    """An edge as an SVG path; `label` with its place; `width` grows with the effect."""

    circuit: int
    source: str
    target: str
    port: str
    path: str
    label: str
    at: Point
    width: float
    negative: bool
    said: str


@dataclass(frozen=True)
class Drawing:
    """A circuit graph, ready to be written as SVG. `crowded`: circuits with too many edges for
    labels; `compact`: many heads, drawn small."""

    width: float
    height: float
    radius: float
    compact: bool
    bars: tuple[float, float]  # y of the output's bar and of the embedding's
    left: float
    right: float
    layers: tuple[tuple[str, float], ...]
    heads: tuple[DrawnHead, ...]
    edges: tuple[DrawnEdge, ...] = field(default=())
    crowded: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Grid:
    layers: int
    heads: int

    @property
    def compact(self) -> bool:
        return self.layers * self.heads > 24

    @property
    def cell(self) -> Point:
        across = 190.0 if self.heads <= 3 else 120.0 if self.heads <= 6 else 74.0
        up = 180.0 if self.layers <= 3 else 116.0
        return (62.0, 66.0) if self.compact else (across, up)

    @property
    def radius(self) -> float:
        return 15.0 if self.compact else 24.0

    @property
    def left(self) -> float:
        return 74.0  # layer names stand there

    @property
    def right(self) -> float:
        return self.left + self.heads * self.cell[0]

    @property
    def height(self) -> float:
        return self.layers * self.cell[1] + 2 * 62.0

    def place(self, layer: int, head: int) -> Point:
        across, up = self.cell
        return self.left + (head + 0.5) * across, self.height - 62.0 - (layer + 0.5) * up


def draw_graph(report: Report) -> Drawing:
    """The drawing of all of a report's circuits; which of them is shown is the reader's choice."""
    nodes = graph_nodes(report)
    grid = _Grid(
        1 + max((n["layer"] for n in nodes), default=0),
        1 + max((n["head"] for n in nodes), default=0),
    )
    heads = tuple(
        DrawnHead(
            n["node"], n["layer"], n["head"], n["role"], n["circuits"],
            *grid.place(n["layer"], n["head"]),
        )
        for n in nodes
    )  # fmt: skip
    table = graph_edges(report)
    largest: dict[int, float] = {}
    shown: dict[int, int] = {}
    for row in table:
        if not _faint(row):
            shown[row["circuit"]] = shown.get(row["circuit"], 0) + 1
        if row["effect"] is not None:
            best = max(largest.get(row["circuit"], 0.0), abs(row["effect"]))
            largest[row["circuit"]] = best
    pairs = [(c, e) for c in report.circuits for e in c.edges]
    taken: dict[int, list[Point]] = {}
    edges = []
    for (_, edge), row in zip(pairs, table, strict=True):
        path, places = _route(grid, edge)
        text = _label(edge, row)
        at = _free(places, taken.setdefault(row["circuit"], [])) if text else places[0]
        edges.append(_drawn(edge, row, path, text, at, largest.get(row["circuit"], 0.0)))
    return Drawing(
        width=grid.right + (24 if grid.compact else 104),
        height=grid.height,
        radius=grid.radius,
        compact=grid.compact,
        bars=(30.0, grid.height - 30.0),
        left=grid.left,
        right=grid.right,
        layers=tuple((f"layer {i}", grid.place(i, 0)[1]) for i in range(grid.layers)),
        heads=heads,
        edges=tuple(edges),
        crowded=frozenset(i for i, count in shown.items() if count > MOST_LABELS),
    )


def _label(edge: Edge, row: dict[str, Any]) -> str:
    """Port and effect; the edges to the logits carry the effect alone."""
    if _faint(row):
        return ""
    port = "" if edge.port == "out" else edge.port
    effect = "" if row["effect"] is None else rounded(row["effect"], 1).replace("-", "\u2212")
    return f"{port} {effect}".strip()


def _free(places: tuple[Point, ...], taken: list[Point]) -> Point:
    """The first place where no label of the circuit stands yet, else the one with most room; it is
    then taken. A label takes about 43 by 19."""

    def room(place: Point) -> float:
        gaps = (max(abs(place[0] - x) / 43, abs(place[1] - y) / 19) for x, y in taken)
        return min(gaps, default=2.0)

    best = next((p for p in places if room(p) > 1), max(places, key=room))
    taken.append(best)
    return best


def _drawn(
    edge: Edge, row: dict[str, Any], path: str, label: str, at: Point, largest: float
) -> DrawnEdge:
    effect = row["effect"]
    said = f"{name_of(edge.source)} to {name_of(edge.target)}"
    said += "" if edge.port == "out" else f", read as {edge.port}"
    if effect is not None:
        said += f": {effect:.2f} nats ({row['unit']})"
    weight = abs(effect) / largest if effect is not None and largest > 0 else 0.0
    return DrawnEdge(
        row["circuit"],
        row["source"],
        row["target"],
        edge.port,
        path,
        label,
        at,
        1.1 if _faint(row) else 1.3 + 3.2 * weight,
        effect is not None and rounded(effect, 1).startswith("-"),
        said,
    )


def _faint(row: dict[str, Any]) -> bool:
    """Whether an edge is one of the many from the embedding to a head, drawn without a label."""
    return bool(row["source"] == EMBED and row["target"] != OUTPUT)


def _route(grid: _Grid, edge: Edge) -> tuple[str, tuple[Point, ...]]:
    """SVG path of an edge, and places where its label can stand."""
    r, (across, up) = grid.radius, grid.cell
    top, bottom = 43.0, grid.height - 43.0  # the bars' inner sides
    if isinstance(edge.source, str) and isinstance(edge.target, str):
        x = grid.right - 9
        return f"M{x:.1f} {bottom:.1f}V{top:.1f}", ((x, grid.height / 2),)
    if isinstance(edge.target, str):
        assert not isinstance(edge.source, str)
        x, y = grid.place(*edge.source)
        if edge.source[0] == grid.layers - 1:
            return f"M{x:.1f} {y - r:.1f}V{top:.1f}", ((x, (y - r + top) / 2),)
        g = x + across / 2
        bend = f"C{x:.1f} {y - up / 2:.1f} {g:.1f} {y - r:.1f} {g:.1f} {y - up * 0.8:.1f}"
        return f"M{x:.1f} {y - r:.1f}{bend}V{top:.1f}", ((g, y - up * 0.8), (g, y - up * 1.2))
    x, y = grid.place(*edge.target)
    x, y = x + PORT_PLACE[edge.port] * r, y + r * (0.8 if edge.port != "K" else 1.0)
    if isinstance(edge.source, str):
        if edge.target[0] == 0:
            return f"M{x:.1f} {bottom:.1f}V{y:.1f}", ((x, y),)
        g = grid.place(*edge.target)[0] - across / 2 + 2.5 * PORT_PLACE[edge.port]
        bend = f"C{g:.1f} {y + up * 0.1:.1f} {x:.1f} {y + up * 0.4:.1f} {x:.1f} {y:.1f}"
        return f"M{g:.1f} {bottom:.1f}V{y + up * 0.45:.1f}{bend}", ((g, y),)
    return _between(grid, edge, (x, y))


def _between(grid: _Grid, edge: Edge, end: Point) -> tuple[str, tuple[Point, ...]]:
    """A curve from one head's top to another's port, bowed where it would pass through heads."""
    assert not isinstance(edge.source, str)
    assert not isinstance(edge.target, str)
    sx, sy = grid.place(*edge.source)
    start = (sx + PORT_PLACE[edge.port] * grid.radius / 3, sy - grid.radius)
    rise = (start[1] - end[1]) * 0.5
    bow = 0.0
    if edge.target[0] - edge.source[0] > 1 and abs(edge.source[1] - edge.target[1]) < 2:
        bow = grid.cell[0] * (0.62 if edge.source[1] <= edge.target[1] else -0.62)
    c1 = (start[0] + bow, start[1] - rise)
    c2 = (end[0] + bow, end[1] + rise)
    path = "M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}".format(*start, *c1, *c2, *end)
    return path, tuple(_bezier(start, c1, c2, end, t) for t in ALONG)


def _bezier(a: Point, b: Point, c: Point, d: Point, t: float) -> Point:
    s = 1 - t
    weights = (s**3, 3 * s * s * t, 3 * s * t * t, t**3)
    x, y = (sum(w * p[i] for w, p in zip(weights, (a, b, c, d), strict=True)) for i in (0, 1))
    return x, y
