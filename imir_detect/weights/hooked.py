"""`HookedTransformer` (TransformerLens 2.x, 3.x) to `RawModel`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from imir_detect.errors import UnsupportedModelError
from imir_detect.linalg import DTYPE, to_analysis
from imir_detect.weights.attention import Attention, QKNorm, Rotary
from imir_detect.weights.mlps import read_mlp
from imir_detect.weights.model import MLPWeights, Opaque
from imir_detect.weights.norms import read_norm
from imir_detect.weights.parameters import read_heads
from imir_detect.weights.raw import Norm, RawBlock, RawModel

POSITIONS = ("standard", "rotary", "alibi", "shortformer")


def read_hooked(model: Any) -> RawModel:
    """Every parameter and switch of a `HookedTransformer`.

    Raises UnsupportedModelError naming the feature, and InvalidWeightsError naming the parameter.
    """
    cfg = model.cfg
    _refuse_unread(cfg)
    kind = cfg.positional_embedding_type
    table = to_analysis(model.pos_embed.W_pos) if kind in ("standard", "shortformer") else None
    empty = torch.zeros(0, cfg.d_model, dtype=DTYPE)
    final = getattr(model, "ln_final", None)
    return RawModel(
        W_E=to_analysis(model.embed.W_E),
        W_pos=table if kind == "standard" and table is not None else empty,
        blocks=tuple(
            _block(cfg, block, layer, table if kind == "shortformer" else None)
            for layer, block in enumerate(model.blocks)
        ),
        final=read_norm(final, cfg.d_model, "the final norm"),
        W_U=to_analysis(model.unembed.W_U),
        b_U=to_analysis(model.unembed.b_U),
        eps=float(cfg.eps),
        n_ctx=int(cfg.n_ctx),
        parallel=bool(cfg.parallel_attn_mlp),
    )


def _refuse_unread(cfg: Any) -> None:
    features = {
        f"{cfg.positional_embedding_type} positions": cfg.positional_embedding_type
        not in POSITIONS,
        "bidirectional attention": cfg.attention_dir != "causal",
        "an embedding norm": getattr(cfg, "post_embedding_ln", False),
    }
    found = [name for name, present in features.items() if present]
    if found:
        raise UnsupportedModelError(
            f"the model has {' and '.join(found)}, which is not read",
            wanted="a causal decoder with learned, rotary, ALiBi or shortformer positions",
            todo="nothing is guessed: use a model without it",
        )


def _block(cfg: Any, block: Any, layer: int, shortformer: Tensor | None) -> RawBlock:
    attn = block.attn
    raw, biases = read_heads(attn, layer)
    post = getattr(block, "ln1_post", None)
    ln2, mlp = _mlp(cfg, block, layer)
    return RawBlock(
        ln1=read_norm(block.ln1, cfg.d_model, f"the norm before attention {layer}"),
        W_Q=raw["Q"],
        W_K=raw["K"],
        W_V=raw["V"],
        W_O=raw["O"],
        b_Q=biases["Q"],
        b_K=biases["K"],
        b_V=biases["V"],
        b_O=biases["O"],
        scale=float(attn.attn_scale),
        attention=_attention(cfg, attn, raw, shortformer),
        post=None
        if post is None
        else read_norm(post, cfg.d_model, f"the norm after attention {layer}"),
        ln2=ln2,
        mlp=mlp,
    )


def _mlp(cfg: Any, block: Any, layer: int) -> tuple[Norm | None, MLPWeights | Opaque | None]:
    if cfg.attn_only:
        return None, None
    ln2 = read_norm(block.ln2, cfg.d_model, f"the norm of MLP {layer}")
    post = getattr(block, "ln2_post", None)
    gain = (
        None if post is None else read_norm(post, cfg.d_model, f"the norm after MLP {layer}").gain
    )
    mlp = read_mlp(block.mlp, cfg.n_layers, cfg.act_fn, gain)
    if isinstance(mlp, MLPWeights) and mlp.W_gate is not None:
        # This library adds b_in behind the gate.
        b_out = mlp.b_out + mlp.b_in @ mlp.W_out
        mlp = replace(mlp, b_in=torch.zeros_like(mlp.b_in), b_out=b_out)
    return ln2, mlp


def _attention(
    cfg: Any, attn: Any, raw: dict[str, Tensor], shortformer: Tensor | None
) -> Attention:
    kind = cfg.positional_embedding_type
    rotary = slopes = norm = None
    if kind == "rotary":
        sin, cos = attn.rotary_sin[1], attn.rotary_cos[1]  # angles at position 1
        pairs = cfg.rotary_dim // 2
        adjacent = bool(cfg.rotary_adjacent_pairs)
        angle = torch.atan2(to_analysis(sin), to_analysis(cos))
        rotary = Rotary(angle[::2] if adjacent else angle[:pairs], adjacent=adjacent)
    if kind == "alibi":
        head = torch.arange(1, cfg.n_heads + 1, dtype=DTYPE)
        slopes = 2 ** (-8 * head / cfg.n_heads)
    if getattr(cfg, "use_qk_norm", False):
        gains = [to_analysis(n.w).expand(cfg.n_heads, -1) for n in (attn.q_norm, attn.k_norm)]
        norm = QKNorm(gains[0], gains[1], together=False, eps=float(cfg.eps))
    cap = float(getattr(cfg, "attn_scores_soft_cap", -1.0))
    return Attention(
        rotary=rotary,
        qk_norm=norm,
        slopes=slopes,
        window=int(cfg.window_size) if attn.attn_type == "local" else None,
        cap=cap if cap > 0 else None,
        query_places=None if shortformer is None else shortformer @ raw["Q"],
        key_places=None if shortformer is None else shortformer @ raw["K"],
    )
