"""Every function of the stages still gives the numbers that it gave (see `recorded.py`)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from plain_answers import differences
from recorded import ANSWERS, CASES, answer, draws

KNOWN: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8"))
SAME_DRAWS = not list(differences(draws(), KNOWN["draws"]))


def test_every_case_has_an_answer_and_no_other_has() -> None:
    assert set(KNOWN["answers"]) == set(CASES)


@pytest.mark.skipif(not SAME_DRAWS, reason="this torch draws other random numbers from a seed")
@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_the_recorded_one(name: str) -> None:
    found = list(differences(answer(name), KNOWN["answers"][name]))
    assert not found, "\n".join(found[:10])
