"""Every row of the support table: attention predicted from the model's own residual is the model's,
or the refusal names the reason."""

from typing import Any

import families
import pytest
import torch

from imir_detect import predict_attention
from imir_detect.errors import UnsupportedModelError
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights
from imir_detect.weights.support import FAMILIES

WRAPPED = [f for f in FAMILIES if f.name not in ("TransformerLensNative", "HookedTransformer")]
TOKENS = torch.randint(40, (3, 20), generator=torch.Generator().manual_seed(7))


def own_patterns(model: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Residuals and attention of every layer, from the model's own hooks."""
    with torch.no_grad():
        _, cache = model.run_with_cache(TOKENS)
    layers = range(model.cfg.n_layers)
    return (
        [cache[f"blocks.{i}.hook_resid_pre"].double() for i in layers],
        [cache[f"blocks.{i}.attn.hook_pattern"].double() for i in layers],
    )


def worst(weights: ModelWeights, residuals: list[torch.Tensor], seen: list[torch.Tensor]) -> float:
    errors = []
    for layer, (x, pattern) in enumerate(zip(residuals, seen, strict=True)):
        errors.append(float((predict_attention(weights, layer, x) - pattern).abs().max()))
    return max(errors)


def test_the_table_lists_what_is_tested() -> None:
    assert {f.name for f in WRAPPED} == set(families.CONFIGS)
    assert sum(f.read for f in WRAPPED) >= 14


@pytest.mark.parametrize("family", [f for f in WRAPPED if f.read], ids=lambda f: f.name)
def test_attention_predicted_from_the_reading_is_the_models(family: Any) -> None:
    model = families.wrapped(family.name)
    weights = read_weights(model)
    assert worst(weights, *own_patterns(model)) < 1e-3
    assert weights.readable == (family.limit == "")


@pytest.mark.parametrize("family", [f for f in WRAPPED if not f.read], ids=lambda f: f.name)
def test_what_is_not_read_is_refused_by_name(family: Any) -> None:
    import re

    with pytest.raises(UnsupportedModelError, match=re.escape(family.reason)):
        read_weights(families.wrapped(family.name))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm": "LN", "d_mlp": 16},
        {"norm": "RMS", "d_mlp": 16, "gated": True, "act_fn": "silu"},
        {"position": "rotary"},
        {"position": "rotary", "rotary_dim": 4, "n_kv_heads": 1, "norm": "RMS"},
        {"cap": 3.0},
    ],
    ids=str,
)
def test_native_models_of_every_setting(settings: dict[str, Any]) -> None:
    model = ModelSpec(40, 20, d_model=32, n_heads=4, init_range=0.4, **settings).boot(seed=3)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    assert worst(read_weights(model), *own_patterns(model)) < 1e-3


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM", "Gemma2ForCausalLM"])
def test_folding_a_wrapped_model_once_or_twice_changes_nothing(name: str) -> None:
    model = families.wrapped(name)
    raw = read_weights(model)
    for _ in range(2):
        model.enable_compatibility_mode()
        folded = read_weights(model)
        for (_, a), (_, b) in zip(raw.tensors(), folded.tensors(), strict=True):
            assert torch.allclose(a, b, atol=1e-5 * max(1.0, float(a.abs().max()) if len(a) else 1))


def test_a_soft_cap_on_many_logits_is_undone_before_they_are_compared() -> None:
    """Capped logits of so many tokens lie so close that their ranks are round-off."""
    model = families.wrapped(
        "Gemma2ForCausalLM", vocab_size=60_000, final_logit_softcapping=2.0, seed=1
    )
    weights = read_weights(model)
    assert any("soft cap" in note for note in weights.notes)


def test_a_reading_that_is_not_the_models_is_refused() -> None:
    """The guard behind the table: here a hook doubles the queries behind the reader's back."""
    model = families.wrapped("LlamaForCausalLM")
    read_weights(model)
    model.blocks[1].attn.hook_q.add_hook(lambda q, hook: 2 * q, is_permanent=True)
    with pytest.raises(UnsupportedModelError, match=r"of layer 1 .* are not the model's"):
        read_weights(model)
