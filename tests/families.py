"""Tiny random models of every family in the support table, made offline from configurations."""

from __future__ import annotations

from typing import Any

import torch

SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
GPT = {"vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
HEADS = {"head_dim": 8}
WINDOWS = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2LMHeadModel": ("GPT2Config", GPT),
    "GPTBigCodeForCausalLM": ("GPTBigCodeConfig", GPT),
    "OPTForCausalLM": (
        "OPTConfig",
        {
            "vocab_size": 40,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 64,
            "max_position_embeddings": 32,
            "word_embed_proj_dim": 32,
        },
    ),
    "XGLMForCausalLM": (
        "XGLMConfig",
        {
            "vocab_size": 40,
            "d_model": 32,
            "num_layers": 2,
            "attention_heads": 4,
            "ffn_dim": 64,
            "max_position_embeddings": 32,
        },
    ),
    "GPTNeoForCausalLM": (
        "GPTNeoConfig",
        {
            "vocab_size": 40,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "intermediate_size": 64,
            "max_position_embeddings": 32,
            "window_size": 4,
            "attention_types": [[["global", "local"], 1]],
        },
    ),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", SIZES),
    "GPTJForCausalLM": ("GPTJConfig", {**GPT, "rotary_dim": 4}),
    "PhiForCausalLM": ("PhiConfig", SIZES),
    "FalconForCausalLM": (
        "FalconConfig",
        {
            "vocab_size": 40,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
        },
    ),
    "StableLmForCausalLM": ("StableLmConfig", GROUPED),
    "LlamaForCausalLM": ("LlamaConfig", GROUPED),
    "MistralForCausalLM": ("MistralConfig", {**GROUPED, "sliding_window": 6}),
    "Qwen2ForCausalLM": ("Qwen2Config", GROUPED),
    "Qwen3ForCausalLM": ("Qwen3Config", {**GROUPED, **HEADS}),
    "GemmaForCausalLM": ("GemmaConfig", {**GROUPED, **HEADS}),
    "Gemma2ForCausalLM": ("Gemma2Config", {**GROUPED, **HEADS, "sliding_window": 6}),
    "Gemma3ForCausalLM": ("Gemma3TextConfig", {**GROUPED, **HEADS, **WINDOWS}),
    "Phi3ForCausalLM": ("Phi3Config", {**GROUPED, "pad_token_id": 0}),
    "OlmoForCausalLM": ("OlmoConfig", SIZES),
    "Olmo2ForCausalLM": ("Olmo2Config", GROUPED),
    "Olmo3ForCausalLM": ("Olmo3Config", {**GROUPED, **WINDOWS}),
    "GraniteForCausalLM": (
        "GraniteConfig",
        {
            **GROUPED,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "logits_scaling": 4.0,
            "attention_multiplier": 0.2,
        },
    ),
    "Starcoder2ForCausalLM": ("Starcoder2Config", GROUPED),
    "SmolLM3ForCausalLM": (
        "SmolLM3Config",
        {**GROUPED, "pad_token_id": 0, "no_rope_layers": [1, 0]},
    ),
    "NemotronForCausalLM": ("NemotronConfig", GROUPED),
    "CohereForCausalLM": ("CohereConfig", GROUPED),
    "Cohere2ForCausalLM": ("Cohere2Config", {**GROUPED, **WINDOWS}),
    "GlmForCausalLM": ("GlmConfig", {**GROUPED, **HEADS, "pad_token_id": 0}),
    "Glm4ForCausalLM": ("Glm4Config", {**GROUPED, **HEADS, "pad_token_id": 0}),
    "Exaone4ForCausalLM": ("Exaone4Config", {**GROUPED, **WINDOWS}),
    "Ernie4_5ForCausalLM": ("Ernie4_5Config", {**GROUPED, **HEADS}),
    "BloomForCausalLM": (
        "BloomConfig",
        {"vocab_size": 40, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    ),
    "MptForCausalLM": (
        "MptConfig",
        {"vocab_size": 40, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 32},
    ),
    "MixtralForCausalLM": ("MixtralConfig", {**GROUPED, "num_local_experts": 4}),
    "Qwen2MoeForCausalLM": (
        "Qwen2MoeConfig",
        {
            **GROUPED,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32,
            "num_experts": 4,
        },
    ),
    "Qwen3MoeForCausalLM": (
        "Qwen3MoeConfig",
        {
            **GROUPED,
            **HEADS,
            "moe_intermediate_size": 32,
            "num_experts": 4,
            "num_experts_per_tok": 2,
        },
    ),
    "OlmoeForCausalLM": ("OlmoeConfig", {**GROUPED, "num_experts": 8, "num_experts_per_tok": 2}),
    "GptOssForCausalLM": (
        "GptOssConfig",
        {**GROUPED, **HEADS, **WINDOWS, "num_local_experts": 4},
    ),
    "BertForMaskedLM": ("BertConfig", SIZES),
    "T5ForConditionalGeneration": (
        "T5Config",
        {
            "vocab_size": 40,
            "d_model": 32,
            "d_kv": 8,
            "num_layers": 2,
            "num_heads": 4,
            "d_ff": 64,
        },
    ),
    "MambaForCausalLM": (
        "MambaConfig",
        {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2},
    ),
    "Lfm2ForCausalLM": (
        "Lfm2Config",
        {
            **GROUPED,
            "num_hidden_layers": 4,
            "layer_types": ["conv", "full_attention", "conv", "full_attention"],
        },
    ),
    "OpenAIGPTLMHeadModel": ("OpenAIGPTConfig", GPT),
    "DeepseekV3ForCausalLM": ("DeepseekV3Config", SIZES),
    "Llama4ForCausalLM": ("Llama4TextConfig", GROUPED),
}


def unwrapped(name: str, *, seed: int = 0, scale: float | None = 0.6, **extra: Any) -> Any:
    """A tiny random Hugging Face model of this class; biases and gains random, too. `scale` None:
    as its own library initialises it."""
    import transformers

    config_name, settings = CONFIGS[name]
    config = getattr(transformers, config_name)(
        **{**settings, **extra, "attn_implementation": "eager"}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, name)(config).eval()
        with torch.no_grad():
            for parameter in model.parameters() if scale is not None else ():
                noise = torch.randn_like(parameter)
                if parameter.ndim == 1:
                    parameter.add_(0.3 * noise)
                else:
                    parameter.copy_(scale * noise / parameter.shape[-1] ** 0.5)
    return model


def wrapped(name: str, **settings: Any) -> Any:
    """`unwrapped` in a bridge."""
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    model = unwrapped(name, **settings)
    return build_bridge_from_module(model, architecture=name, hf_config=model.config)
