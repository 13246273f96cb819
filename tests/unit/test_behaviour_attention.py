"""Measured attention on repeated tokens, on heads that do what they are told."""

import planted
import pytest
import torch

from imir_detect.behaviour import repeated_attention
from imir_detect.errors import InvalidArgumentError


def test_planted_heads_are_measured_as_planted() -> None:
    model = planted.induction()
    state = torch.get_rng_state()
    table = repeated_attention(model, period=7)
    assert torch.equal(state, torch.get_rng_state())
    first, _, second, _ = table
    assert first["previous_token"] > 0.99
    assert (
        second["induction"] > 0.4
    )  # random tokens repeat within a period of a 14-token vocabulary
    assert second["induction"] > 3 * first["induction"]
    assert repeated_attention(model, period=99).rows == repeated_attention(model, period=7).rows


def test_a_model_without_patterns_is_told_so() -> None:
    model = planted.induction()
    model.cfg.n_layers = 3
    with pytest.raises(InvalidArgumentError, match=r"nothing at blocks\.2\.attn\.hook_pattern"):
        repeated_attention(model)
