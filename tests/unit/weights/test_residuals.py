"""Running a model for its residual stream alone, and what leads the logits behind it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from imir_detect import read_weights
from imir_detect.weights import unembed
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.run import run_logits, run_residuals
from imir_detect.weights.unembed import by_block, top_tokens

TOKENS = torch.arange(10).view(2, 5)


def model_of(norm: Any) -> Any:
    return ModelSpec(13, 6, n_heads=2, d_model=8, norm=norm, init_range=0.5).boot(seed=0)


@pytest.mark.parametrize("norm", [None, "RMS", "LN"])
def test_a_run_for_residuals_ends_before_the_unembedding_and_leaves_no_hook(norm: Any) -> None:
    model = model_of(norm)
    names = ["blocks.0.hook_resid_pre", "blocks.1.hook_resid_pre", "blocks.1.hook_resid_post"]
    _, cache = model.run_with_cache(TOKENS, names_filter=lambda name: name in names)
    weights = read_weights(model)
    called: list[str] = []
    handle = model.unembed.register_forward_hook(lambda *_: called.append("unembedded"))
    found = run_residuals(model, weights, TOKENS)
    assert called == []
    for name, rows in zip(names, found, strict=True):
        wanted = cache[name].double()
        wanted = wanted - wanted.mean(-1, keepdim=True) if norm == "LN" else wanted
        assert torch.allclose(rows, wanted)
        assert rows.dtype == torch.float64
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
    run_logits(model, TOKENS)
    assert called == ["unembedded"]
    handle.remove()


@pytest.mark.parametrize("norm", [None, "RMS", "LN"])
def test_the_leading_token_is_that_of_the_models_own_logits(norm: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(unembed, "BLOCK", 4)  # 13 tokens in four blocks, the last of one
    model = model_of(norm)
    with torch.no_grad():
        model.unembed.b_U.copy_(torch.randn(13, generator=torch.Generator().manual_seed(1)))
    weights = read_weights(model)
    residual = run_residuals(model, weights, TOKENS)[-1]
    assert torch.equal(top_tokens(weights, residual), run_logits(model, TOKENS).argmax(-1))


def test_blocks_are_the_whole_product_and_the_bias_as_often_as_asked(monkeypatch: Any) -> None:
    monkeypatch.setattr(unembed, "BLOCK", 5)
    weights = read_weights(model_of("LN"))
    rows = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)).double()
    times = torch.tensor([[0.0], [1.0], [-0.5]], dtype=torch.float64)
    firsts, blocks = zip(*by_block(weights, rows, times), strict=True)
    assert firsts == (0, 5, 10)
    wanted = rows @ weights.W_U + times * weights.b_U
    assert torch.allclose(torch.cat(blocks, 1), wanted, atol=1e-5)
