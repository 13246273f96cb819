"""`HookedTransformer` of TransformerLens 2.x and 3.x: every setting is read, or refused by name.

Run by `tests/compat/run.sh` in environments that have that class; where the library has it no more
there is nothing to test.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

transformer_lens = pytest.importorskip("transformer_lens")
try:
    transformer_lens.HookedTransformer  # noqa: B018
except (AttributeError, ImportError):
    pytest.skip("this library has no HookedTransformer", allow_module_level=True)

from imir_detect import detect_circuits, predict_attention, read_weights  # noqa: E402
from imir_detect.errors import InvalidWeightsError, UnsupportedModelError  # noqa: E402

SETTINGS: list[dict[str, Any]] = [
    {},
    {"normalization_type": "LN"},
    {"normalization_type": "LNPre"},
    {"normalization_type": "RMS", "final_rms": True},
    {"normalization_type": "RMSPre", "final_rms": True},
    {"normalization_type": "LN", "attn_only": False, "d_mlp": 24},
    {
        "normalization_type": "RMS",
        "final_rms": True,
        "attn_only": False,
        "d_mlp": 24,
        "gated_mlp": True,
        "act_fn": "silu",
    },
    {"normalization_type": "LN", "attn_only": False, "d_mlp": 24, "act_fn": "solu_ln"},
    {"normalization_type": "LN", "attn_only": False, "d_mlp": 24, "parallel_attn_mlp": True},
    {"positional_embedding_type": "rotary", "rotary_dim": 8},
    {"positional_embedding_type": "rotary", "rotary_dim": 4, "rotary_adjacent_pairs": False},
    {"positional_embedding_type": "rotary", "rotary_dim": 4, "rotary_adjacent_pairs": True},
    {"positional_embedding_type": "alibi"},
    {"positional_embedding_type": "shortformer", "normalization_type": "LN"},
    {"n_key_value_heads": 2},
    {"use_attn_scale": False},
    {"attn_scale": 3.0},
    {"scale_attn_by_inverse_layer_idx": True},
    {"attn_scores_soft_cap": 4.0},
    {"use_local_attn": True, "attn_types": ["global", "local"], "window_size": 5},
    {"use_qk_norm": True},
    {
        "use_normalization_before_and_after": True,
        "normalization_type": "RMS",
        "final_rms": True,
        "attn_only": False,
        "d_mlp": 24,
    },
]


def hooked(**settings: Any) -> Any:
    config = {
        "d_model": 32,
        "d_head": 8,
        "n_layers": 2,
        "n_heads": 4,
        "n_ctx": 20,
        "d_vocab": 40,
        "attn_only": True,
        "act_fn": "relu",
        "normalization_type": None,
        "seed": 1,
        "default_prepend_bos": False,
        **settings,
    }
    model = transformer_lens.HookedTransformer(transformer_lens.HookedTransformerConfig(**config))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_attention_predicted_from_the_reading_is_the_models(settings: dict[str, Any]) -> None:
    model = hooked(**settings)
    weights = read_weights(model)
    tokens = torch.randint(40, (3, 20), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
    for layer in range(2):
        found = predict_attention(weights, layer, cache[f"blocks.{layer}.hook_resid_pre"])
        seen = cache[f"blocks.{layer}.attn.hook_pattern"].double()
        assert float((found - seen).abs().max()) < 1e-3
    assert weights.readable == (settings.get("act_fn") != "solu_ln")


def test_folded_and_raw_models_are_read_alike() -> None:
    model = hooked(normalization_type="LN", attn_only=False, d_mlp=24)
    raw = read_weights(model)
    model.process_weights_(fold_ln=True, center_writing_weights=True, center_unembed=True)
    for (_, a), (_, b) in zip(raw.tensors(), read_weights(model).tensors(), strict=True):
        assert torch.allclose(a, b, atol=1e-4 * max(1.0, float(a.abs().max())))


def test_what_is_not_read_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match="bidirectional attention"):
        read_weights(hooked(attention_dir="bidirectional"))


def test_stray_numbers_are_named() -> None:
    model = hooked()
    with torch.no_grad():
        model.blocks[1].attn.W_O[0, 0, 0] = float("nan")
    with pytest.raises(InvalidWeightsError, match=r"blocks.1.attn.W_O: 1 of 1024 entries"):
        read_weights(model)


def test_a_fresh_model_gets_no_circuit_and_comes_back_untouched() -> None:
    model = hooked(normalization_type="LN")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    report = detect_circuits(model)
    assert report.label == "none"
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())


@pytest.mark.parametrize(
    "name", ["GPT2LMHeadModel", "GPTNeoXForCausalLM", "LlamaForCausalLM", "Gemma2ForCausalLM"]
)
def test_bridges_of_the_3_x_generation_are_read(name: str) -> None:
    pytest.importorskip("transformer_lens.model_bridge.sources._bridge_builder")
    import families

    model = families.wrapped(name)
    weights = read_weights(model)
    tokens = torch.randint(40, (3, 20), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
    found = predict_attention(weights, 1, cache["blocks.1.hook_resid_pre"])
    assert float((found - cache["blocks.1.attn.hook_pattern"]).abs().max()) < 1e-3
