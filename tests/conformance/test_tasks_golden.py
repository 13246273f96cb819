"""Same seed, same data: on every platform, torch version and thread count."""

from __future__ import annotations

import json

import pytest
import torch
from task_cases import SETTINGS, label, labelled
from task_golden import FILE, digest


@pytest.mark.parametrize("case", SETTINGS, ids=label)
def test_data_is_what_it_always_was(case: tuple[str, dict[str, object]]) -> None:
    golden = json.loads(FILE.read_text(encoding="utf-8"))
    assert digest(labelled(case)) == golden[label(case)], "the data of a seed has changed"


def test_every_golden_hash_belongs_to_a_setting_and_none_is_shared() -> None:
    golden = json.loads(FILE.read_text(encoding="utf-8"))
    assert set(golden) == {label(case) for case in SETTINGS}
    assert len(set(golden.values())) == len(golden)


def test_the_number_of_threads_does_not_matter() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = digest(labelled(("recall", {"zipf": 1.0})))
        torch.set_num_threads(4)
        assert digest(labelled(("recall", {"zipf": 1.0}))) == one
    finally:
        torch.set_num_threads(before)
