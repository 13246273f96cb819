"""`imir-detect graph`: the latent causal graph that layer 0 attends along."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from imir_detect.cli.terminal import Model, Seed, console, escape, load, settings


def graph(
    model: Model,
    nodes: Annotated[int | None, typer.Option(help="Positions to read, from 0.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write all candidate edges as JSON.")] = None,
    seed: Seed = 0,
) -> None:
    """Read from layer 0 which earlier position each position depends on, with a null."""
    from imir_detect.circuits.causal_graph import recover_causal_graph
    from imir_detect.table import Table

    found = recover_causal_graph(load(model), nodes=nodes, seed=seed)
    if settings.quiet:
        print(" ".join(f"{e.parent}->{e.child}" for e in found.edges))
    console.print(escape(str(found)), soft_wrap=True)
    for text in found.notes:
        console.print(f"[dim]  note: {escape(text)}[/dim]")
    if json is not None:
        rows = list(found.rows())
        columns = list(rows[0]) if rows else []
        table = Table(columns, (row.values() for row in rows))
        console.print(f"candidates written to {escape(str(table.to_json(json)))}")
