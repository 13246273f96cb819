"""The command line: `imir-detect demo | train | detect | tasks`.

Exit codes: 0 done; 1 an error of the package's, told in one line; 2 arguments that do not parse.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from imir_detect.errors import ImirError, UnreadableFileError
from imir_detect.result import Report, cell_text
from imir_detect.zoo import SHIPPED, shipped_folder

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Read from a transformer's weights which circuits it holds.",
)
tasks = typer.Typer(help="The tasks that models are trained and measured on.")
app.add_typer(tasks, name="tasks")
console = Console(highlight=False)


def main() -> None:
    """Entry point: one line and exit code 1 for an error a user can mend, no traceback."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    try:
        app()
    except ImirError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"error: {escape(' '.join(str(error).split()))}"
        )
        sys.exit(1)


@app.command()
def demo() -> None:
    """Detect the circuits of the four shipped models and print what the weights say."""
    from imir_detect.pipeline import detect_circuits
    from imir_detect.weights.store import load_model

    for name in SHIPPED:
        model, card = load_model(shipped_folder(name))
        start = time.perf_counter()
        report = detect_circuits(model)
        seconds = time.perf_counter() - start
        console.rule(f"shipped model {name!r}, read in {seconds:.2f} s")
        console.print(escape(str(report)))
        behaviour = ", ".join(f"{k} {v:.2f}" for k, v in card["measured"].items())
        console.print(f"for comparison, its behaviour as measured: {behaviour}")
        console.print(_coordinates(report, most=8))


@app.command()
def detect(
    model: Annotated[
        str, typer.Argument(help="A shipped model's name, or a saved model's folder.")
    ],
    json: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    context: Annotated[int | None, typer.Option(help="Positions that compete.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all draws.")] = 0,
    verify: Annotated[bool, typer.Option(help="Ablate the circuits found, too.")] = False,
) -> None:
    """Detect the circuits of one model and print the report."""
    from imir_detect.pipeline import detect_circuits

    report = detect_circuits(
        _load(model), context=context, seed=seed, verify="ablate" if verify else None
    )
    console.print(escape(str(report)))
    for text in report.limits:
        console.print(f"[dim]  limit: {escape(text)}[/dim]")
    console.print(_heads(report))
    if json is not None:
        console.print(f"report written to {escape(str(report.to_json(json)))}")


@app.command()
def train(
    folder: Annotated[Path, typer.Argument(help="Where the model is saved; a killed run resumes.")],
    blocks: Annotated[int, typer.Option(help="Blocks of a sequence.")] = 8,
    common: Annotated[int, typer.Option(help="Common tokens, paired by the fixed relation.")] = 32,
    rare: Annotated[int, typer.Option(help="Rare tokens, paired afresh.")] = 32,
    rare_frequency: Annotated[float, typer.Option(help="Chance that a block is rare.")] = 0.5,
    variability: Annotated[float, typer.Option(help="Chance that a common answer differs.")] = 0.0,
    present: Annotated[float, typer.Option(help="Chance that the answer is in context.")] = 1.0,
    layers: Annotated[int, typer.Option()] = 2,
    heads: Annotated[int, typer.Option()] = 2,
    width: Annotated[int, typer.Option()] = 64,
    norm: Annotated[
        str | None, typer.Option(help="LN, RMS, LNPre or RMSPre; none by default.")
    ] = None,
    mlp: Annotated[int, typer.Option(help="Width of MLPs; 0 for attention only.")] = 0,
    steps: Annotated[int, typer.Option()] = 2500,
    rate: Annotated[float, typer.Option()] = 3e-3,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Train a small recall model and save it with a card of its measured behaviour."""
    from dataclasses import asdict

    from imir_detect.tasks import make_task
    from imir_detect.training.behaviour import measured_label
    from imir_detect.training.loop import Recipe, describe, evaluate
    from imir_detect.training.loop import train as run_training
    from imir_detect.weights.native import ModelSpec
    from imir_detect.weights.store import save_model

    task = make_task(
        "recall",
        n_blocks=blocks,
        n_common=common,
        n_rare=rare,
        rare_frequency=rare_frequency,
        variability=variability,
        present=present,
    )
    spec = ModelSpec(
        task.vocab_size,
        task.n_positions,
        n_layers=layers,
        n_heads=heads,
        d_model=width,
        d_head=max(32, width // heads),
        d_mlp=mlp,
        norm=norm,  # type: ignore[arg-type]  # ModelSpec refuses what it does not know
    )
    recipe = Recipe(steps=steps, rate=rate, seed=seed)
    run = run_training(task, spec, recipe, folder=folder)
    measured = evaluate(run.model, task)
    card = {
        "label": measured_label(measured),
        "task": describe(task),
        "recipe": asdict(recipe),
        "measured": measured,
    }
    save_model(run.model, spec, folder, card)
    (folder / "checkpoint.safetensors").unlink(missing_ok=True)
    console.print(f"saved to {escape(str(folder))}: {card['label']}, measured {measured}")


@tasks.callback(invoke_without_command=True)
def list_tasks(context: typer.Context) -> None:
    """List the tasks; `tasks show NAME` prints examples, ceiling and circuits of one."""
    from imir_detect.tasks.show import task_list

    if context.invoked_subcommand is None:
        print(task_list())


@tasks.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A task's name.")],
    seed: Annotated[int, typer.Option(help="Seed of the examples.")] = 0,
) -> None:
    """Print examples, ceiling, symmetries and circuits of one task."""
    from imir_detect.tasks.show import show_task

    print(show_task(name, seed=seed))


def _load(name: str) -> Any:
    from imir_detect.weights.store import load_model

    folder = shipped_folder(name) if name in SHIPPED else Path(name)
    if not folder.is_dir():
        raise UnreadableFileError(
            f"no model {name!r}",
            wanted=f"a shipped model ({', '.join(SHIPPED)}) or a saved model's folder",
            todo="check the name, or train one with `imir-detect train FOLDER`",
        )
    return load_model(folder)[0]


def _coordinates(report: Report, most: int) -> RichTable:
    """The rows that the circuits rest on: the largest cosines of each unit."""
    table = RichTable(title="coordinates: the clearest directions", title_justify="left")
    for name in ("unit", "head", "path", "nats", "cosine", "predicted"):
        table.add_column(name, no_wrap=True)
    rows = sorted(report.coordinates, key=lambda row: -abs(row["cosine"]))[:most]
    for row in rows:
        head = "-" if row["layer"] is None else f"L{row['layer']}H{row['head']}"
        numbers = [f"{row[k]:.2f}" for k in ("effect", "cosine", "predicted")]
        unit = row["selection"] if row["unit"] == "shift" else row["unit"]
        table.add_row(unit, head, row["path"], *numbers)
    return table


def _heads(report: Report) -> RichTable:
    """The head table under short column names, so that it fits a terminal."""
    table = RichTable(title="heads: predicted attention, read-out, role", title_justify="left")
    short = {
        "previous_token": "previous",
        "duplicate_token": "duplicate",
        "induction": "induction",
        "copying": "copies",
        "suppression": "suppr.",
        "association": "assoc.",
        "role": "role",
    }
    for name in ("head", *short.values()):
        table.add_column(name, no_wrap=True)
    for row in report.heads:
        entries = (cell_text(row[name]) for name in short)
        table.add_row(f"L{row['layer']}H{row['head']}", *entries)
    return table
