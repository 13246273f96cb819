"""What the commands share: the console, the two switches, and how a model is named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any

import typer
from rich import markup
from rich.console import Console
from rich.table import Table as RichTable
from typer.core import TyperGroup

from imir_detect.arguments import LARGEST_SEED
from imir_detect.table import Table
from imir_detect.zoo import SHIPPED, shipped_folder

SWITCHES = ("--quiet", "--debug")


@dataclass
class Settings:
    """The switches of this run: `debug` lets errors through, `quiet` leaves results only."""

    debug: bool = False
    quiet: bool = False


settings = Settings()
console = Console(highlight=False)  # silent under --quiet; results then go through `print`


Seed = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of all draws.")]


def escape(text: str) -> str:
    """Text for the console: no markup, and what would steer the terminal shown instead.

    >>> escape("[red]\\x1b[2J")
    '\\\\[red]\\\\x1b[2J'
    """
    kept = (c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
    return markup.escape("".join(kept))


class Group(TyperGroup):
    """A command group that takes the two switches anywhere in the line, up to a bare `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        switches = [a for a in args[:end] if a in SWITCHES]
        rest = [a for a in args[:end] if a not in SWITCHES]
        return super().parse_args(ctx, [*switches, *rest, *args[end:]])


def tell(text: str) -> None:
    """Lines of text: wrapped with a hanging indent on a terminal, as they are in a pipe."""
    for line in text.splitlines():
        if console.is_terminal:
            indent = " " * (len(line) - len(line.lstrip()) + 2)
            line = fill(line, console.width, subsequent_indent=indent, drop_whitespace=True)
        console.print(escape(line), soft_wrap=True)


def plain_table(*columns: str, title: str | None = None) -> RichTable:
    """A table without rules, so that it fits 80 columns and reads well in a pipe."""
    table = RichTable(
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        title=title,
        title_justify="left",
        title_style="",
    )
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table


def save_rows(rows: list[dict[str, Any]], path: Path | None, what: str) -> None:
    """Write a command's rows as JSON where a file is named, and say so."""
    if path is not None:
        table = Table(rows[0] if rows else (), (row.values() for row in rows))
        console.print(f"{what} written to {escape(str(table.to_json(path)))}")


def shipped_names(incomplete: str) -> list[str]:
    """Shipped models that start so, for TAB in a shell."""
    return [name for name in SHIPPED if name.startswith(incomplete)]


Json = Annotated[Path | None, typer.Option(help="Write the rows as JSON.")]
Model = Annotated[
    str,
    typer.Argument(
        help="A shipped model's name, a folder (saved here, or Hugging Face's), a GGUF file, "
        "or a name on the hub.",
        autocompletion=shipped_names,
    ),
]


def load(name: str) -> Any:
    """A model by what the user typed: a shipped model's name, or what `open_model` takes."""
    from imir_detect.weights.sources import open_model

    return open_model(shipped_folder(name) if name in SHIPPED else name)
