"""`imir-detect zoo`: labelled models, what is known of them, and how to train them again."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from imir_detect.cli.terminal import Json, console, escape, plain_table, save_rows, settings
from imir_detect.errors import ImirError
from imir_detect.weights.native import ModelSpec
from imir_detect.zoo import HOME

app = typer.Typer(help="Models whose behaviour was measured: list, show, build, check.")
NO_TASK = {"name": "-"}
Folder = Annotated[Path, typer.Option(help="Where the models lie; the package's own by default.")]


class SplitName(str, Enum):
    """The splits of the zoo's grid."""

    training = "training"
    development = "development"
    held_out = "held-out"
    fresh = "fresh"


@app.command("list")
def list_models(folder: Folder = HOME, json: Json = None) -> None:
    """List the models: label, measured accuracies, task and architecture."""
    from imir_detect.weights.store import read_card
    from imir_detect.zoo.cards import model_folders

    table = plain_table("model", "label", "ICL", "IWL", "task", "architecture")
    cards = []
    for home in model_folders(folder):
        card = read_card(home)
        cards.append({"model": home.name, "label": card.get("label"), **card.get("measured", {})})
        if settings.quiet:
            print(home.name)
        measured = card.get("measured", {})
        accuracies = [_share(measured.get(f"{axis}_accuracy")) for axis in ("icl", "iwl")]
        words = (home.name, card.get("label", "-"), *accuracies, card.get("task", NO_TASK)["name"])
        table.add_row(*map(escape, words), escape(_shape(card["spec"])))
    console.print(table)
    columns = {name: None for row in cards for name in row}
    save_rows([{**columns, **row} for row in cards], json, "models")


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A model's name.")], folder: Folder = HOME
) -> None:
    """Print the card of one model."""
    from imir_detect.weights.store import read_card
    from imir_detect.zoo.cards import model_folder

    print(json.dumps(read_card(model_folder(folder, name)), indent=2))


@app.command("build")
def build_zoo(
    folder: Annotated[Path, typer.Argument(help="Where the models go; what is there is kept.")],
    split: Annotated[SplitName | None, typer.Option(help="Only this split.")] = None,
) -> None:
    """Train the whole zoo, or one split: resumable, about five seconds a model on one core."""
    from imir_detect.zoo.build import build
    from imir_detect.zoo.grid import grid

    entries = grid(None if split is None else split.value)
    build(entries, folder, tell=lambda line: console.print(escape(line)))


@app.command("check")
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Models; all by default.")] = None,
    folder: Folder = HOME,
) -> None:
    """Measure the models again, and say which cards are not so (exit code 1)."""
    from imir_detect.zoo.cards import check_model, model_folder, model_folders

    homes = [model_folder(folder, name) for name in names] if names else model_folders(folder)
    wrong = 0
    for home in homes:
        found = check_model(home)
        wrong += bool(found)
        console.print(escape(f"{home.name}: {'; '.join(found) or 'as its card says'}"))
    if wrong:
        raise ImirError(
            "some cards are not so",
            got=f"{wrong} of {len(homes)}",
            wanted="behaviour measured again as on the card",
            todo="fetch or train these models again",
        )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _shape(spec: dict[str, Any]) -> str:
    """A specification in a few letters; a card may leave out what has a default, or be wrong."""
    try:
        known = ModelSpec(**spec)
    except (ImirError, TypeError):
        return "-"
    parts = [f"{known.n_layers}L{known.n_heads}H d{known.d_model}", known.norm or ""]
    parts += ["MLP"] if known.d_mlp else []
    parts += ["rotary"] if known.position == "rotary" else []
    return " ".join(part for part in parts if part)
