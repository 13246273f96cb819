"""The shipped calibration: monotone, marked where a model lies outside it, and readable."""

import json
import math

import pytest

from imir_detect.circuits.core import Circuit, Coverage
from imir_detect.circuits.verdict import (
    FILE,
    Logistic,
    features,
    outside_training,
    predicted_accuracy,
    read_fit,
    shipped_fit,
)
from imir_detect.coordinates.pathsum import Edge
from imir_detect.errors import UnreadableFileError


def circuit(kind: str, strength: float, **effects: float) -> Circuit:
    edges = (Edge((0, 0), "output", "out"),)
    coverage = Coverage(0.5, "positions")
    return Circuit(kind, ((0, 0),), edges, effects, strength, coverage)  # type: ignore[arg-type]


def test_features_are_those_of_the_strongest_circuit_of_each_axis() -> None:
    found = [
        circuit("induction", 0.6, shift=4.0, match=3.0, copy=9.0),
        circuit("pointer_induction", 0.7, look=5.0, match=6.0, copy=2.0),
        circuit("in_weights", 0.2, associate=8.0, **{"associate direct": 1.0}),
        circuit("skip", 1.0, shift=1.0),
    ]
    values = features(found)
    assert {k: v for k, v in values.items() if not k.endswith("_odds")} == {
        "icl_strength": 0.7,
        "icl_wins": 0.7,
        "icl_matched": 0.7,
        "icl_coverage": 0.5,
        "icl_nats": 2.0,
        "iwl_strength": 0.2,
        "iwl_wins": 0.2,
        "iwl_matched": 0.2,
        "iwl_coverage": 0.5,
        "iwl_nats": 8.0,
    }
    assert values["icl_strength_odds"] == pytest.approx(math.log(0.7 / 0.3))
    assert features([])["icl_wins_odds"] == pytest.approx(math.log(0.02 / 0.98))


def test_what_the_whole_model_answers_stands_beside_what_the_circuit_does() -> None:
    values = features([circuit("induction", 0.6)], {"icl": 0.9, "iwl": 0.1}, 0.8)
    assert (values["icl_strength"], values["icl_wins"], values["icl_matched"]) == (0.6, 0.9, 0.8)
    assert (values["iwl_strength"], values["iwl_wins"], values["iwl_matched"]) == (0.0, 0.1, 0.1)
    # A model that guesses wins some questions, and owes none of it to the match.
    guessing = features([], {"icl": 0.3, "iwl": 0.0}, 0.0)
    assert (guessing["icl_wins"], guessing["icl_matched"]) == (0.3, 0.0)


def test_a_logistic_is_what_it_says() -> None:
    assert Logistic(0.0, {"x": 2.0})({"x": 0.0}) == 0.5
    assert Logistic(-1.0, {"x": 2.0})({"x": 1.0}) == pytest.approx(0.7310585786)
    assert Logistic(-1000.0, {})({}) == 0.0


def test_the_expected_accuracy_rises_with_strength_from_nothing_to_nearly_all() -> None:
    for axis, kind in (("icl", "induction"), ("iwl", "in_weights")):
        values = [predicted_accuracy([circuit(kind, s / 10)])[axis] for s in range(11)]
        assert values == sorted(values)
        assert values[0] < 0.15
        assert values[-1] > 0.9


def test_models_outside_the_range_are_marked_in_words() -> None:
    ranges, kinds = shipped_fit().ranges, shipped_fit().kinds
    inside = {name: low for name, (low, _) in ranges.items()}
    inside |= {name: values[0] for name, values in kinds.items()}
    assert outside_training(inside) == []
    deep = outside_training({**inside, "layers": 12})
    assert deep == [f"layers 12, not {ranges['layers'][0]} .. {ranges['layers'][1]}"]
    assert outside_training({**inside, "mlp": "gated"})[0].startswith("mlp gated, not ")
    assert outside_training({}) == []


def test_the_fit_names_the_split_it_comes_from() -> None:
    split = shipped_fit().split
    assert split["name"] == "training"
    assert split["models"] > 50
    assert len(split["sha256"]) == 64


def test_a_broken_fit_is_refused(tmp_path) -> None:
    data = json.loads(FILE.read_text())
    del data["works"]["iwl"]
    path = tmp_path / "verdict.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UnreadableFileError, match=r"no readable calibration.*calibrate anew"):
        read_fit(path)
