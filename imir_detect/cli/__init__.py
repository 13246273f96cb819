"""The command line, one module a command group; each adds itself to `app` with one line below.

Exit codes: 0 done; 1 an error, told in one line; 2 arguments that do not parse. `--debug` shows
where an error came from, `--quiet` leaves results only; both may stand anywhere in the line.
"""

from __future__ import annotations

import logging
import sys
import warnings
from io import TextIOWrapper
from typing import Annotated

import typer
from rich.console import Console

from imir_detect.cli import bench, compare, demo, detect, graph, support, tasks, theory, train, zoo
from imir_detect.cli.terminal import Group, console, escape, settings
from imir_detect.errors import ImirError
from imir_detect.progress import silence

__all__ = ["app", "main"]

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Read from a transformer's weights which circuits it holds.",
    epilog="Exit codes: 0 done; 1 an error, told in one line; 2 arguments that do not parse.",
)
app.command()(demo.demo)
app.command()(detect.detect)
app.command()(compare.compare)
app.command()(graph.graph)
app.command()(support.support)
app.command()(train.train)
app.add_typer(bench.app, name="bench")
app.add_typer(tasks.app, name="tasks")
app.add_typer(theory.app, name="theory")
app.add_typer(zoo.app, name="zoo")


@app.callback()
def _settings(
    quiet: Annotated[bool, typer.Option("--quiet", help="Print results only.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    settings.debug = debug
    settings.quiet = console.quiet = quiet
    silence(quiet)


def main() -> None:
    """Entry point: one line and exit code 1 for an error, no traceback unless `--debug`."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    settings.debug = False
    if isinstance(sys.stdout, TextIOWrapper):  # a terminal of few letters shows the others' numbers
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except Exception as error:
        if settings.debug:
            raise
        text = " ".join(str(error).split())
        if not isinstance(error, ImirError):
            text = f"unexpected {type(error).__name__}: {text}; next step: run it with --debug"
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {escape(text)}")
        sys.exit(1)
