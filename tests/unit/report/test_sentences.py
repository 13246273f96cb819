"""Sentences follow from the report: heads, numbers, verbs that agree."""

from dataclasses import replace
from typing import Any, get_args

import pytest
from report_cases import big_report, circuit

from imir_detect.circuits.core import Kind
from imir_detect.report.sentences import (
    DOES,
    circuit_sentences,
    head_sentences,
    listed,
    percent,
    story,
    verdict_sentence,
)
from imir_detect.result import Table


def test_every_kind_has_its_sentence() -> None:
    assert set(DOES) == set(get_args(Kind))
    for kind in DOES:
        first = circuit_sentences(circuit(kind, [(0, 1)], [], 0.6))[0]
        assert first.endswith(".")
        assert "{" not in first


def test_verbs_agree_with_how_many_heads_there_are() -> None:
    edges = [((0, 0), (1, 0), "K"), ((1, 0), "output", "out")]
    one = circuit_sentences(circuit("induction", [(0, 0), (1, 0)], edges, 0.8))
    assert one[0].startswith("When a token comes back, L1H0 looks at what stood behind")
    assert one[1].startswith("L0H0 tells it where to look, by marking")
    assert one[2] == (
        "It works: by itself, and not overruled by the rest of the model, it gives the right "
        "answer on 80% of random contexts, counted at the 94% of positions that it covers."
    )
    two = circuit_sentences(circuit("previous_token", [(0, 0), (0, 1)], [], 0.4))
    assert two == (
        "L0H0 and L0H1 attend to the token just before.",
        "Strength 0.40, at the 94% of positions that it covers.",
    )
    weak = circuit_sentences(circuit("in_weights", [], [], 0.2))
    assert weak[1].startswith("It is too weak to count: ")


def test_a_heads_sentences_are_its_coordinates() -> None:
    rows = [
        ("shift", 0, 0, "direct", "shift 1", 4.0, 0.9, None, 0.94),
        ("match", 0, 0, "q:direct k:direct", "identity", -2.0, 0.9, 3.0, 0.9),
        ("match", 1, 0, "q:direct k:L0H0", "identity", 8.0, 0.3, 3.0, 0.99),
        ("match", 1, 0, "q:L0H1 k:L0H0", "identity", 7.0, 0.2, 3.0, 0.5),
        ("copy", 1, 0, "L1H0", "identity", 8.5, 0.3, 3.0, 1.0),
        ("associate", 1, 0, "L0H0>L1H0", "association", 1.5, 0.1, 3.0, 0.25),
        ("match", 2, 0, "q:own k:own", "identity", 3.0, 0.3, 3.0, 0.75),
        ("match", 2, 0, "q:own k:before", "identity", 6.0, 0.5, 3.0, 0.5),
        ("copy", None, None, "direct", "identity", 9.0, 0.9, 9.0, 1.0),
    ]
    base = big_report(2, 1, 2)
    report = replace(base, coordinates=Table(base.coordinates.columns, rows))
    assert head_sentences(report, (0, 0)) == (
        "attends one back: 4.0 nats, predicted attention 0.94",
    )
    assert head_sentences(report, (1, 0)) == (
        "writes the token it attends to: 8.5 nats, on top for 1.00 of tokens",
        "attends where what L0H0 carried there equals its own token: 8.0 nats, predicted "
        "attention 0.99",
        "attends where what L0H0 carried there equals what L0H1 carried here: 7.0 nats, predicted "
        "attention 0.50",
        "writes the learned partner of what L0H0 carried to where it attends: 1.5 nats, on top "
        "for 0.25 of tokens",
    )
    assert head_sentences(report, (2, 0)) == (
        "attends where the token before it equals its own token: 6.0 nats, predicted attention "
        "0.50",
        "attends to copies of its own token: 3.0 nats, predicted attention 0.75",
    )
    assert head_sentences(report, (1, 1)) == ()


def test_the_verdict_says_how_far_to_trust_it(shipped: dict[str, Any]) -> None:
    report = shipped["mixed"][1]
    report = replace(report, meta={**report.meta, "calibrated": False, "extrapolated": False})
    text = verdict_sentence(report)
    assert "not calibrated: read it as an order, not as a frequency" in text
    assert "induction (strength 0." in text
    assert "in weights (strength 0." in text
    meta = {**report.meta, "calibrated": True}
    assert "calibrated on models whose" in verdict_sentence(replace(report, meta=meta))
    meta["extrapolated"] = ["vocabulary 64, not 16 .. 40"]
    assert (
        ", extrapolated: the model lies outside the range of those that probabilities were "
        "calibrated on (vocabulary 64, not 16 .. 40), so read it as an order"
    ) in verdict_sentence(replace(report, meta=meta))
    none = verdict_sentence(shipped["none"][1])
    assert none.endswith("No circuit that answers reaches a strength of one half.")


def test_the_story_tells_both_ways_of_answering(shipped: dict[str, Any]) -> None:
    both = story(shipped["mixed"][1])
    assert "When a token comes back" in both
    assert "the answer sits in the weights" in both
    assert "sits in the weights" not in story(shipped["icl"][1])
    assert story(shipped["none"][1]) == "Nothing was found in the weights that answers by itself."


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0%"), (0.004, "< 1%"), (0.88, "88%"), (0.995, "> 99%"), (1.0, "100%")],
)
def test_percentages_never_round_to_certainty(share: float, text: str) -> None:
    assert percent(share) == text


def test_lists_are_cut_and_counted() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcdefgh")) == "a, b, c, d, e, f and 2 more heads"
