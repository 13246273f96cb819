"""Profiles of attention by distance: planted heads, and an average worked out by hand."""

from dataclasses import replace

import planted
import pytest
import torch

from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.coordinates.profiles import position_profiles
from imir_detect.weights.read import read_weights


def test_the_profile_is_the_mean_of_a_diagonal() -> None:
    pattern = torch.tensor([[1.0, 0, 0], [0.25, 0.75, 0], [0.5, 0.2, 0.3]]).double()
    some = sum_paths(read_weights(planted.empty(layers=1, heads=1)), torch.arange(3)[None])
    rows = position_profiles(replace(some, attention=(pattern[None, None],)))
    assert [(r.layer, r.head, r.back) for r in rows] == [(0, 0, 0), (0, 0, 1), (0, 0, 2)]
    expected = [(1 + 0.75 + 0.3) / 3, (0.25 + 0.2) / 2, 0.5]
    assert [r.attention for r in rows] == pytest.approx(expected)


def test_a_planted_previous_token_head_peaks_at_one_back() -> None:
    model = planted.empty(layers=1, heads=2)
    planted.previous_token(model, 0, 1)
    tokens = torch.randperm(planted.VOCAB)[None, : planted.CONTEXT]
    rows = position_profiles(sum_paths(read_weights(model), tokens))
    of_head = {r.back: r.attention for r in rows if r.head == 1}
    assert max(of_head, key=of_head.__getitem__) == 1
    assert of_head[1] > 0.99
