"""What the commands share: the console, the two switches, and how a model is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich import markup
from rich.console import Console
from typer.core import TyperGroup

from imir_detect.arguments import LARGEST_SEED
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


def shipped_names(incomplete: str) -> list[str]:
    """Shipped models that start so, for TAB in a shell."""
    return [name for name in SHIPPED if name.startswith(incomplete)]


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
