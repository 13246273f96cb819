"""The data behind pictures of studies: a phase diagram, a causal graph, a scored suite of methods.

What a report's own pictures are made from stands in `tables`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from imir_detect.circuits.causal_graph import CausalGraph
from imir_detect.errors import InvalidArgumentError
from imir_detect.table import Table

OUTCOMES = ("predicted", "trained")
OUTCOME_COLOURS = {"icl": "#1d4ed8", "iwl": "#b45309", "both": "#6d28d9", "none": "#6b7280"}
ARC_POINTS = 25


def phase_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Who wins over f_r, f_v and b, in long form: f_r, f_v, b, outcome, label, icl, iwl, on_border.

    `rows`: as `imir_detect.theory.competition.outcome_row` makes them. `outcome` is "predicted"
    (four coordinates) or "trained" (the full model); icl and iwl are its final accuracies.
    """
    columns = ("f_r", "f_v", "b", "outcome", "label", "icl", "iwl", "on_border")
    found = []
    for row in _checked(rows, ("f_r", "f_v", "b", *OUTCOMES), "theory.competition.outcome_row"):
        for name in OUTCOMES:
            accuracies = (row[f"{name} icl"], row[f"{name} iwl"])
            place = (row["f_r"], row["f_v"], row["b"])
            found.append((*place, name, row[name], *accuracies, row["on border"]))
    return Table(columns, found)


def causal_table(graph: CausalGraph) -> Table:
    """One row a candidate edge, those that passed first, strongest first within each: child,
    parent, head, confidence, effect (nats where read from weights), p_value, edge."""
    rows = sorted(graph.rows(), key=lambda row: (not row["edge"], -float(row["confidence"] or 0)))
    columns = ("child", "parent", "head", "confidence", "effect", "p_value", "edge")
    return Table(columns, ([row[name] for name in columns] for row in rows))


def arc(parent: int, child: int) -> tuple[list[float], list[float]]:
    """Points of the arc over a line of nodes from one to the other: half a circle, flattened.

    >>> xs, ys = arc(0, 2)
    >>> xs[0], xs[-1], max(ys) == ys[12]
    (0.0, 2.0, True)
    """
    middle, radius = (parent + child) / 2, abs(child - parent) / 2
    turns = [math.pi * (1 - i / (ARC_POINTS - 1)) for i in range(ARC_POINTS)]
    xs = [middle + math.copysign(radius, child - parent) * math.cos(t) for t in turns]
    ys = [radius**0.75 * math.sin(t) for t in turns]
    return [round(x, 6) for x in xs], [round(y, 6) for y in ys]


def leaderboard_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One row a method and granularity, best first: granularity, method, auc with its 95 %
    bootstrap interval low .. high (None without a run that ended), seconds (mean processor time),
    ok, declined, failed (numbers of runs). Over all cases and ablations, controls left out."""
    from imir_detect.benchmark.results import leaderboard

    columns = ("granularity", "method", "auc", "low", "high", "seconds", "ok", "declined", "failed")
    names = ("granularity", "method", "auc", "auc_low", "auc_high", "cpu_seconds", "ok", "declined",
             "failed")  # fmt: skip
    whole = [
        row
        for row in leaderboard(_suite(rows))
        if (row["cases"], row["ablation"]) == ("all", "all")
    ]
    return Table(columns, ([_finite(row[name]) for name in names] for row in whole))


def pareto_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Accuracy against cost on edges, cheapest first: method, auc (mean), seconds of processor
    time and passes (medians), front (nothing else is both better and cheaper)."""
    from imir_detect.benchmark.results import pareto

    columns = ("method", "auc", "seconds", "passes", "front")
    return Table(columns, ([row[name] for name in columns] for row in pareto(_suite(rows))))


def case_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Every run in long form: case, method, auc (None where none), status, reason. Cases in the
    order given, methods best first; controls, which have nothing right to rank, are left out."""
    rows = [row for row in _suite(rows) if row["source"] != "control"]
    order = list(dict.fromkeys(leaderboard_table(rows).column("method")))
    cases = list(dict.fromkeys(row["case"] for row in rows))
    ranked = sorted(rows, key=lambda row: (cases.index(row["case"]), order.index(row["method"])))
    columns = ("case", "method", "auc", "status", "reason")
    return Table(columns, ([row[name] for name in columns] for row in ranked))


def case_grid(table: Table) -> tuple[list[str], list[str], list[list[float | None]]]:
    """Methods, cases, and the AUC of each pair, case by case."""
    methods = list(dict.fromkeys(table.column("method")))
    names = list(dict.fromkeys(table.column("case")))
    found = {(row["case"], row["method"]): row["auc"] for row in table}
    return methods, names, [[found.get((case, m)) for m in methods] for case in names]


def pareto_points(table: Table, width: float, height: float) -> list[tuple[float, float]]:
    """The methods' places in pixels from the top left: seconds on a logarithmic scale."""
    if not len(table):
        return []
    across = [math.log10(max(s, 1e-9)) for s in table.column("seconds")]
    up = table.column("auc")
    left, right, low, high = min(across), max(across), min(up), max(up)
    wide, tall = (right - left) or 1.0, (high - low) or 1.0
    return [
        (20 + (width - 40) * (x - left) / wide, 20 + (height - 40) * (high - y) / tall)
        for x, y in zip(across, up, strict=True)
    ]


def label_places(
    points: Sequence[tuple[float, float]], texts: Sequence[str], width: float, height: float
) -> list[tuple[float, float]]:
    """Where the label of each point stands, in pixels: the left end of its middle line, near the
    point and free of other labels and points where there is room.

    `points` in pixels from the top left of a field of `width` x `height`.
    """
    boxes = [(x - 5, y - 5, x + 5, y + 5) for x, y in points]
    places = []
    for (x, y), text in zip(points, texts, strict=True):
        long, tall = 6.2 * len(text) + 4, 13.0
        tries = []
        for far in (8, 22, 36, 52, 70):
            tries += [(x + 8, y + dy) for dy in (0, -far, far)]
            tries += [(x - 8 - long, y + dy) for dy in (0, -far, far)]
            tries += [(x - long / 2, y - far - 4), (x - long / 2, y + far + 4)]

        def crossed(place: tuple[float, float], long: float = long, tall: float = tall) -> float:
            a, b, c, d = place[0], place[1] - tall / 2, place[0] + long, place[1] + tall / 2
            outside = max(0.0, -a) + max(0.0, c - width) + max(0.0, -b) + max(0.0, d - height)
            over = sum(
                max(0.0, min(c, r) - max(a, p)) * max(0.0, min(d, s) - max(b, q))
                for p, q, r, s in boxes
            )
            return over + 20 * outside

        best = min(tries, key=crossed)  # the first of the best: nearest to the point
        boxes.append((best[0], best[1] - tall / 2, best[0] + long, best[1] + tall / 2))
        places.append(best)
    return places


def _suite(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    needed = ("case", "method", "status", "auc", "source", "granularity", "ablation", "cpu_seconds")
    return [dict(row) for row in _checked(rows, needed, "benchmark.results.read_rows")]


def _checked(
    rows: Iterable[Mapping[str, Any]], needed: Sequence[str], maker: str
) -> list[Mapping[str, Any]]:
    found = list(rows)
    lacking = [name for name in needed if not found or name not in found[0]]
    if lacking:
        raise InvalidArgumentError(
            "these rows are not what the figure is drawn from",
            got=f"no {', '.join(lacking)}" if found else "no rows",
            wanted=f"rows of imir_detect.{maker}",
            todo="pass those",
        )
    return found


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
