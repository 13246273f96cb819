"""Kinds of 2-hop circuits: signs by hand, and a start that leaves no doubt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from imir_detect.errors import InvalidArgumentError
from imir_detect.models.hop_data import HopSequences
from imir_detect.theory.kinds import PLAN, KindRace, kind_of, race_kinds


def test_kinds_by_hand() -> None:
    found = [kind_of(1.0, 2.0), kind_of(-1.0, -2.0), kind_of(1.0, -2.0), kind_of(0.0, 1.0)]
    assert found == ["match", "double anti-match", "mixed", "mixed"]
    four = (6.0, 5.0, 5.0, 9.0)
    assert KindRace(four, four, 0.95).kind == "match"
    assert KindRace(four, four, 0.94).kind == "not learned"


def test_a_strong_canonical_start_stays_and_is_reported() -> None:
    plan = replace(PLAN, steps=40, batch=32)
    hop = HopSequences(n_items=4, vocab=8)
    race = race_kinds(canonical=4.0, noise=0.0, hop=hop, plan=plan)
    assert race.start == (4.0,) * 4
    assert race.kind == "match"
    assert race.end != race.start
    again = race_kinds(canonical=4.0, noise=0.0, hop=hop, plan=plan)
    assert again == race
    with pytest.raises(InvalidArgumentError, match=r"2-hop induction; got hops=1"):
        race_kinds(canonical=1.0, hop=HopSequences(hops=1))
