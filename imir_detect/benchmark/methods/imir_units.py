"""What the weights say of units: a direction's own attention or read-out, times its weakest edge.

A unit works only as part of a whole: a head that looks one back counts where another head's match
reads it and the answer follows. So its score is what the direction does by itself (`predicted` of
the coordinate table: mean attention to what it selects, or share of tokens read out on top) times
the least effect, in nats, of the edges that it needs. Directions that the table has no row for
score zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.benchmark.cases import Case
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, Edge, Node, Trace
from imir_detect.coordinates.table import coordinate_table
from imir_detect.frame.names import Direction, Path


def needed_edges(unit: Direction) -> tuple[Edge, ...]:
    """The edges that a unit needs: along its paths, into its head or the output."""
    if unit.head is None:
        return (*_along(unit.query), Edge(_last(unit.query), OUTPUT, "out"))
    both = (*_along(unit.query), *_along(unit.key))
    return (*both, Edge(_last(unit.query), unit.head, "Q"), Edge(_last(unit.key), unit.head, "K"))


def _along(path: Path) -> tuple[Edge, ...]:
    nodes: list[Node] = [EMBED, *path.heads]
    return tuple(Edge(a, b, "V") for a, b in zip(nodes, path.heads, strict=False))


def _last(path: Path) -> Node:
    return path.heads[-1] if path.heads else EMBED


def unit_scores(
    case: Case, trace: Trace, effects: Float[Tensor, " edge"], *, seed: int
) -> Float[Tensor, " unit"]:
    """Scores of the case's units from the effects of its edges; `trace`: on random contexts."""
    worth = dict(zip(case.edges, effects.tolist(), strict=True))
    rows = coordinate_table(
        case.weights,
        trace,
        relation=case.question.relation,
        tokens=torch.arange(case.weights.vocab_size),
        seed=seed,
    )
    alone = {
        (None if row.unit in ("copy", "associate") else (row.layer, row.head), row.path,
         row.selection): row.predicted
        for row in rows
    }  # fmt: skip
    values = []
    for unit in case.items:
        assert isinstance(unit, Direction)
        path = str(unit.query)
        if unit.head is not None and unit.selection.space == "token":
            path = f"q:{unit.query} k:{unit.key}"
        elif unit.head is not None and unit.key.heads:
            path = "no row"
        own = alone.get((unit.head, path, str(unit.selection)), 0.0)
        values.append(own * max(0.0, min(worth[edge] for edge in needed_edges(unit))))
    return torch.tensor(values, dtype=torch.float64)
