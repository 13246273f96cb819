"""Circuits check themselves, say what they are, and know which of their heads come last."""

import pytest

from imir_detect.circuits.core import Circuit, Coverage
from imir_detect.circuits.verdict import LABELS, label_probabilities
from imir_detect.coordinates.pathsum import Edge
from imir_detect.errors import ImirError

ALL = Coverage(1.0, "positions")


def circuit(kind: str = "induction", strength: float = 0.9) -> Circuit:
    edges = (Edge((0, 0), (1, 1), "K"), Edge((1, 1), "output", "out"))
    return Circuit(kind, ((0, 0), (1, 1)), edges, {"shift": 4.0}, strength, ALL)  # type: ignore[arg-type]


def test_the_last_heads_are_those_no_other_head_reads() -> None:
    assert circuit().ends == ((1, 1),)


def test_a_circuit_prints_its_heads_strength_and_coverage() -> None:
    assert str(circuit()) == (
        "induction: L0H0, L1H1; strength 0.90; 100% of positions; nats: shift 4.0"
    )
    assert str(Coverage(0.5, "tokens", ("tokens 3",))) == "50% of tokens (not: tokens 3)"


def test_a_circuit_works_above_one_half_only() -> None:
    assert circuit(strength=0.51).works
    assert not circuit(strength=0.5).works


def test_impossible_circuits_are_refused() -> None:
    with pytest.raises(ImirError, match="strength and coverage are shares"):
        circuit(strength=1.5)
    with pytest.raises(ImirError, match="edges name heads that it does not list"):
        Circuit("skip", ((0, 0),), (Edge((0, 1), (1, 0), "K"),), {}, 0.5, ALL)


@pytest.mark.parametrize(
    ("icl", "iwl", "label"),
    [(0.9, 0.1, "icl"), (0.1, 0.9, "iwl"), (0.9, 0.9, "mixed"), (0.2, 0.3, "none")],
)
def test_the_label_follows_the_circuits_that_work(icl: float, iwl: float, label: str) -> None:
    found = [circuit("induction", icl), circuit("in_weights", iwl), circuit("skip", 1.0)]
    probabilities = label_probabilities(found)
    assert max(probabilities, key=lambda k: probabilities[k]) == label
    assert sum(probabilities.values()) == pytest.approx(1)
    assert tuple(probabilities) == LABELS


def test_probability_rises_with_strength() -> None:
    values = [label_probabilities([circuit(strength=s / 10)])["icl"] for s in range(11)]
    assert values == sorted(values)
    assert values[0] < 0.05 < 0.95 < values[-1]
