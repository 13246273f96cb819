"""Building, cards and their check, on models small enough to train in a second."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from imir_detect.errors import (
    BusyFolderError,
    InvalidArgumentError,
    UnknownNameError,
    UnreadableFileError,
)
from imir_detect.files import hold
from imir_detect.training.loop import Recipe
from imir_detect.zoo import SHIPPED, core_names, shipped_folder
from imir_detect.zoo.build import build
from imir_detect.zoo.cards import check_model, model_folders
from imir_detect.zoo.entry import Architecture, Entry

TINY = Architecture("tiny", "training", {"n_heads": 2, "d_model": 16})
KNOBS = {"n_blocks": 2, "n_common": 0, "n_rare": 8, "rare_frequency": 1.0}


def entry(name: str, seed: int) -> Entry:
    recipe = Recipe(steps=2, batch=8, evaluate_every=2, seed=seed)
    return Entry(name, "training", "recall", KNOBS, TINY, recipe, "icl")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    build([entry("a", 1), entry("b", 2)], folder, tell=lambda line: None)
    return folder


def test_a_card_says_what_was_trained_and_what_it_does(built) -> None:
    card = json.loads((built / "a" / "card.json").read_text())
    assert card["label"] == "none"
    assert card["aim"] == "icl"
    assert card["licence"] == "MIT"
    assert card["task"]["knobs"]["n_rare"] == 8
    assert card["recipe"]["seed"] == 1
    assert set(card["measured"]) == {"accuracy", "icl_accuracy"}
    assert [(row["layer"], row["head"]) for row in card["heads"]] == [
        (0, 0), (0, 1), (1, 0), (1, 1),
    ]  # fmt: skip
    weights = load_file(built / "a" / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}


def test_a_second_build_trains_only_what_is_missing(built) -> None:
    told: list[str] = []
    build([entry("a", 1), entry("c", 3)], built, tell=told.append)
    assert [line.split(":")[0] for line in told] == ["c"]


class Killed(Exception):
    """What stops a build."""


def test_a_killed_build_goes_on_in_the_same_company_to_the_same_bits(tmp_path) -> None:
    soon = replace(entry("a", 1), recipe=replace(entry("a", 1).recipe, stop_at={"accuracy": 0.0}))
    entries = [replace(e, recipe=replace(e.recipe, steps=6)) for e in (soon, entry("b", 2))]
    build(entries, tmp_path / "whole", tell=lambda line: None)

    def kill(line: str) -> None:
        raise Killed

    with pytest.raises(Killed):  # a is stored at step 2; the checkpoint is that of the start
        build(entries, tmp_path / "killed", tell=kill)
    stamp = (tmp_path / "killed" / "a" / "card.json").stat().st_mtime_ns
    told: list[str] = []
    build(entries, tmp_path / "killed", tell=told.append)
    assert [line.split(":")[0] for line in told] == ["b"]
    assert (tmp_path / "killed" / "a" / "card.json").stat().st_mtime_ns == stamp
    for file in ("a/model.safetensors", "b/model.safetensors", "a/card.json", "b/card.json"):
        assert (tmp_path / "killed" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert {f.name for f in (tmp_path / "killed").iterdir()} == {"a", "b"}


def test_a_model_of_that_name_made_otherwise_and_a_busy_folder_are_refused(built) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        build([entry("a", 7)], built, tell=lambda line: None)
    assert str(caught.value) == (
        f"{built / 'a'} belongs to another run; got recipe.seed=7; wanted recipe.seed=1; next "
        "step: use another folder, or remove this one to start over"
    )
    with hold(built), pytest.raises(BusyFolderError, match="another run is at work in"):
        build([entry("a", 1)], built, tell=lambda line: None)


def test_the_check_measures_again_and_says_what_is_not_so(built, tmp_path) -> None:
    assert check_model(built / "b") == []
    card = json.loads((built / "b" / "card.json").read_text())
    card["measured"]["icl_accuracy"] = 0.95
    card["label"] = "icl"
    forged = tmp_path / "b"
    forged.mkdir()
    (forged / "card.json").write_text(json.dumps(card))
    data = (built / "b" / "model.safetensors").read_bytes()
    (forged / "model.safetensors").write_bytes(data)
    first, second = check_model(forged)
    assert first.startswith("icl_accuracy: card 0.95, measured 0.")
    assert second == "label: card icl, measured none"
    (forged / "model.safetensors").write_bytes(data[:-2] + b"xx")
    assert check_model(forged) == ["the weights are not the card's: another sha256"]


def test_a_folder_without_models_and_an_unknown_name_are_named(tmp_path) -> None:
    with pytest.raises(UnreadableFileError, match=r"no models under .*zoo build FOLDER"):
        model_folders(tmp_path)
    with pytest.raises(UnknownNameError, match="a name of `imir-detect zoo list`"):
        shipped_folder("nobody")


def test_the_four_shipped_models_come_first() -> None:
    assert core_names()[:4] == SHIPPED
