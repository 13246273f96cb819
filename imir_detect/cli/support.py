"""`imir-detect support`: which kinds of model are read."""

from __future__ import annotations

from dataclasses import asdict

from rich.table import Table as RichTable

from imir_detect.cli.terminal import Json, console, save_rows, settings
from imir_detect.weights.support import FAMILIES


def support(json: Json = None) -> None:
    """List the kinds of model that are read, and those that are refused with the reason."""
    rows = [asdict(family) for family in FAMILIES]
    save_rows(rows, json, "kinds")
    if settings.quiet:
        for family in FAMILIES:
            print(f"{family.name}\t{'read' if family.read else 'refused'}")
        return
    table = RichTable(title="kinds of model (each row is a test)", title_justify="left")
    for name in ("kind", "read", "what it has, or why it is refused"):
        table.add_column(name, no_wrap=name != "what it has, or why it is refused")
    for family in FAMILIES:
        text = family.attention + (f"; {family.limit}" if family.limit else "")
        table.add_row(family.name, "yes" if family.read else "no", text or family.reason)
    console.print(table)
    console.print(
        "Other kinds are tried: every reading is checked against the model's own run, and refused "
        "by name where it differs."
    )
