"""Building, cards and their check, on models small enough to train in a second."""

import json

import pytest
import torch
from safetensors.torch import load_file

from imir_detect.errors import UnknownNameError, UnreadableFileError
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
