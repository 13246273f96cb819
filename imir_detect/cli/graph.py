"""`imir-detect graph`: the latent causal graph that layer 0 attends along."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from imir_detect.cli.terminal import Model, Seed, console, escape, load, save_rows, settings, tell


def graph(
    model: Model,
    nodes: Annotated[int | None, typer.Option(help="Positions to read, from 0.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write all candidate edges as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the graph as a page.")] = None,
    seed: Seed = 0,
) -> None:
    """Read from layer 0 which earlier position each position depends on, with a null."""
    from imir_detect.circuits.causal_graph import recover_causal_graph

    found = recover_causal_graph(load(model), nodes=nodes, seed=seed)
    if settings.quiet:
        print(" ".join(f"{e.parent}->{e.child}" for e in found.edges))
    tell(str(found))
    for text in found.notes:
        tell(f"  note: {text}")
    save_rows(list(found.rows()), json, "candidates")
    if html is not None:
        from imir_detect.report.plates import write_graph_page

        page = write_graph_page(found, html, name=model)
        console.print(f"page written to {escape(str(page))}")
