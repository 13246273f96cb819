"""Cards of stored models: find them, and measure again what they say."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from imir_detect.errors import ImirError, UnknownNameError, UnreadableFileError, some
from imir_detect.strict import read_file
from imir_detect.tasks import Task, make_task
from imir_detect.weights.store import CARD_FILE, WEIGHTS_FILE, load_model, read_card

AGREES = 0.03  # most by which an accuracy measured again may differ from the card's


def model_folders(folder: Path | str) -> list[Path]:
    """The folders of all stored models below `folder`, by name. Raises where there is none."""
    found = sorted(file.parent for file in Path(folder).glob(f"*/{CARD_FILE}"))
    if not found:
        raise UnreadableFileError(
            f"no models under {folder}",
            got="no folder with a card.json",
            wanted="a folder of saved models",
            todo="check the path, or build the zoo with `imir-detect zoo build FOLDER`",
        )
    return found


def model_folder(folder: Path | str, name: str) -> Path:
    """The folder of one stored model below `folder`; a name never leads elsewhere."""
    found = {home.name: home for home in model_folders(folder)}
    if name not in found:
        raise UnknownNameError(
            f"no such model in {folder}",
            got=repr(name),
            wanted=some(list(found)),
            todo="see `imir-detect zoo list`",
        )
    return found[name]


def task_of(card: dict[str, Any]) -> Task:
    """The task of a card, with its knobs."""
    if "task" not in card:
        raise ImirError("the card names no task", todo="save the model with a card that does")
    name, knobs = card["task"]["name"], card["task"]["knobs"]
    if "name" in knobs:  # it would be taken for the task's own
        raise ImirError("the card has a knob that no task has", got="name", todo="remove it")
    return make_task(name, **knobs)


def check_model(folder: Path) -> list[str]:
    """What a card says that is not so: the hash of the weights, behaviour measured on fresh data,
    label, and roles of heads. Empty where all agrees."""
    from imir_detect.zoo.build import behaviour
    from imir_detect.zoo.roles import roles_of

    card = read_card(folder)
    digest = hashlib.sha256(_bytes(folder / WEIGHTS_FILE)).hexdigest()
    if digest != card.get("sha256"):
        return ["the weights are not the card's: another sha256"]
    again = behaviour(load_model(folder)[0], task_of(card))
    wrong = [
        f"{name}: card {value}, measured {again['measured'].get(name)}"
        for name, value in card.get("measured", {}).items()
        if abs(value - again["measured"].get(name, -1.0)) > AGREES
    ]
    if card.get("label", again["label"]) != again["label"]:
        wrong.append(f"label: card {card['label']}, measured {again['label']}")
    if "heads" in card and roles_of(card["heads"]) != roles_of(again["heads"]):
        wrong.append("roles of heads: the card's are not those measured")
    return wrong


def _bytes(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise UnreadableFileError(
            f"no weights at {path}",
            got=f"{type(error).__name__}: {error}",
            wanted="the file that the card describes",
            todo="fetch or train the model again",
        ) from error
