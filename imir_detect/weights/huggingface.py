"""How the attention of a wrapped Hugging Face model departs from the plain form.

The wrapped modules and their configuration are asked, since a bridge leaves many of its own flags
at defaults (an attention scale of 1 in GPT-Neo, a quarter of rotary dimensions in GPT-NeoX).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from imir_detect.errors import UnsupportedModelError
from imir_detect.linalg import DTYPE, to_analysis
from imir_detect.weights.attention import Attention, QKNorm, Rotary
from imir_detect.weights.norms import read_norm

INTERLEAVED = ("gptj", "codegen", "cohere", "cohere2", "glm", "glm4", "ernie4_5", "helium")
UNSCALED = ("gpt_neo",)
WINDOWED_ONLY = ("cohere2", "exaone4")  # these rotate in windowed layers only
REFUSED = {
    "is_encoder_decoder": "an encoder beside its decoder",
    "clip_qkv": "clipped queries and keys",
    "attention_chunk_size": "chunked attention",
    "kv_lora_rank": "latent (low-rank) keys and values",
    "query_pre_attn_norm": "a norm of its own before the queries",
}


def config_of(model: Any) -> Any:
    """The wrapped model's own configuration, of its text part."""
    config = model.original_model.config
    return getattr(config, "text_config", None) or config


def refuse_unread(model: Any) -> None:
    """Raise UnsupportedModelError naming every feature that no reading covers."""
    config = config_of(model)
    found = [text for name, text in REFUSED.items() if getattr(config, name, None)]
    if not getattr(config, "is_decoder", True) and config.model_type in ENCODERS:
        found.append("bidirectional attention")
    if not getattr(config, "do_layer_norm_before", True) or config.model_type == "openai-gpt":
        found.append("norms after each layer instead of before it")
    blocks = getattr(model, "blocks", None)
    without = [] if blocks is None else [i for i, b in enumerate(blocks) if not _has_attention(b)]
    if blocks is None or len(without) == len(blocks):
        found.append("no attention layers of the usual kind")
    elif without:
        found.append(f"no attention in layers {', '.join(map(str, without))}")
    if found:
        raise UnsupportedModelError(
            f"{type(model.original_model).__name__} has {' and '.join(found)}",
            wanted="a causal decoder whose every layer has attention heads",
            todo="nothing is guessed: this kind of model is not read",
        )


ENCODERS = ("bert", "roberta", "distilbert", "albert", "electra", "deberta", "modernbert")


def _has_attention(block: Any) -> bool:
    return getattr(block, "attn", None) is not None


Buffers = list[tuple[Any, dict[str, Tensor]]]


def buffers_of(model: Any) -> Buffers:
    """Every module of the wrapped model that has buffers of its own, and these; found once, since
    the walk is long."""
    found = []
    for part in model.original_model.modules():
        own = dict(part.named_buffers(recurse=False))
        if own:
            found.append((part, own))
    return found


def attention_of(
    model: Any, buffers: Buffers, layer: int, n_heads: int, d_head: int, eps: float
) -> Attention:
    """What `Attention` holds for one layer. The pairing of rotary dimensions is the family's, and
    `verify` tries it on the model."""
    config = config_of(model)
    module = model.blocks[layer].attn.original_component
    return Attention(
        rotary=_rotary(buffers, module, config, layer),
        qk_norm=_qk_norm(model.blocks[layer].attn, module, n_heads, d_head, eps),
        slopes=_slopes(config, module, n_heads),
        sinks=_sinks(module),
        window=_window(module, config, layer),
        cap=_cap(module, config),
    )


def scale_of(module: Any, config: Any, d_head: int) -> float:
    """The divisor of the scores."""
    if config.model_type in UNSCALED:
        return 1.0
    for name in ("scaling", "softmax_scale", "inv_norm_factor"):
        value = getattr(module, name, None)
        if value is not None:
            return 1 / float(value)
    if getattr(config, "scale_attn_by_inverse_layer_idx", False):
        return math.sqrt(d_head) * (float(module.layer_idx) + 1)
    return math.sqrt(d_head)


def _rotary(every: Buffers, module: Any, config: Any, layer: int) -> Rotary | None:
    if getattr(module, "use_rope", True) in (False, 0) or _alibi(config):
        return None
    kinds = getattr(config, "layer_types", None)
    kind = kinds[layer] if kinds else ""
    if config.model_type in WINDOWED_ONLY and kind == "full_attention":
        return None
    for part, buffers in every:
        own = buffers.get(f"{kind}_inv_freq", buffers.get("inv_freq"))
        if own is not None:
            factor = getattr(part, f"{kind}_attention_scaling", None)
            factor = getattr(part, "attention_scaling", None) if factor is None else factor
            return Rotary(
                to_analysis(own),
                adjacent=config.model_type in INTERLEAVED,
                magnitude=1.0 if factor is None else float(factor),
            )
        table = buffers.get("embed_positions")
        if table is not None and getattr(config, "rotary_dim", None):
            sin, cos = to_analysis(table)[1].chunk(2)  # at position 1 the angle is the frequency
            return Rotary(torch.atan2(sin, cos), adjacent=True)
    return None


def _qk_norm(bridge: Any, module: Any, heads: int, d_head: int, eps: float) -> QKNorm | None:
    gains = []
    for port, names in (("q", ("q_norm", "q_layernorm")), ("k", ("k_norm", "k_layernorm"))):
        norm = next((getattr(module, n) for n in names if getattr(module, n, None)), None)
        if norm is None:
            return None
        stored = getattr(norm, "weight", None)
        width = stored.numel() if isinstance(stored, Tensor) else 0
        if width != d_head and width % d_head:
            raise _odd_norm(type(norm).__name__)
        read = read_norm(norm, width, f"the {port} norm")
        if read.kind != "RMS":
            raise _odd_norm(f"{read.kind} ({type(norm).__name__})")
        rows = read.gain.reshape(-1, d_head)
        gains.append(rows.repeat_interleave(heads // len(rows), 0))
        together = width != d_head
        eps = float(getattr(norm, "variance_epsilon", getattr(norm, "eps", eps)))
    return QKNorm(gains[0], gains[1], together=together, eps=eps)


def _odd_norm(got: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        "queries and keys pass a norm that is not read",
        got=got,
        wanted="an RMSNorm over each head, or over all heads of the layer",
        todo="nothing is guessed: use a model without it",
    )


def _alibi(config: Any) -> bool:
    nested = getattr(config, "attn_config", None)
    return bool(
        config.model_type == "bloom"
        or getattr(config, "alibi", False)
        or getattr(nested, "alibi", False)
    )


def _slopes(config: Any, module: Any, heads: int) -> Tensor | None:
    if not _alibi(config):
        return None
    # Falcon adds its slopes before it divides by the scale.
    factor = float(module.inv_norm_factor) if config.model_type == "falcon" else 1.0
    return factor * alibi_slopes(heads)


def alibi_slopes(heads: int) -> Tensor:
    """Slopes of ALiBi (Press et al. 2022): 2^(-8 h / H) for H a power of two, interleaved with
    those of 2H for other counts."""
    power = 2 ** math.floor(math.log2(heads))
    own = [2 ** (-8 * (h + 1) / power) for h in range(power)]
    extra = [2 ** (-4 * (h + 1) / power) for h in range(0, 2 * (heads - power), 2)]
    return torch.tensor(own + extra, dtype=DTYPE)


def _sinks(module: Any) -> Tensor | None:
    sinks = getattr(module, "sinks", None)
    return to_analysis(sinks) if isinstance(sinks, Tensor) else None


def _window(module: Any, config: Any, layer: int) -> int | None:
    if getattr(config, "attention_layers", None):  # GPT-Neo
        return int(config.window_size) if config.attention_layers[layer] == "local" else None
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and kinds[layer] != "sliding_attention":
        return None
    window = getattr(module, "sliding_window", None) or getattr(config, "sliding_window", None)
    if kinds is None and not getattr(config, "use_sliding_window", True):
        return None
    return None if window is None else int(window)


def _cap(module: Any, config: Any) -> float | None:
    cap = getattr(module, "attn_logit_softcapping", None)
    return float(cap) if cap else None
