"""The core zoo that ships: small, cards as contracted, labels read from weights as measured."""

import json

import pytest

from imir_detect import detect_circuits
from imir_detect.training.behaviour import measured_label
from imir_detect.weights.store import load_model
from imir_detect.zoo import HOME, SHIPPED, core_names

OTHERS = [name for name in core_names() if name not in SHIPPED]


def test_it_has_about_forty_models_below_four_megabytes() -> None:
    assert 36 <= len(core_names()) <= 60
    assert sum(f.stat().st_size for f in HOME.rglob("*") if f.is_file()) < 4_000_000


def test_every_label_and_several_tasks_are_there() -> None:
    cards = [json.loads((HOME / name / "card.json").read_text()) for name in OTHERS]
    assert {card["label"] for card in cards} == {"icl", "iwl", "mixed", "none", "ambiguous"}
    assert len({card["task"]["name"] for card in cards}) >= 4
    assert len({card["architecture"] for card in cards}) >= 8
    for card in cards:
        assert card["label"] == measured_label(card["measured"])
        assert card["licence"] == "MIT"
        assert len(card["sha256"]) == 64


# Each third one: the whole zoo is scored by benchmarks/zoo.
@pytest.mark.parametrize("name", OTHERS[::3])
def test_the_label_read_from_weights_is_the_measured_one(name: str) -> None:
    model, card = load_model(HOME / name)
    if card["label"] != "ambiguous":
        assert detect_circuits(model).label == card["label"]
