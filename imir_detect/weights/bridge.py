"""`TransformerBridge` (3.x, 4.x), native or around a Hugging Face model, to `RawModel`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from imir_detect.errors import UnsupportedModelError
from imir_detect.linalg import DTYPE, to_analysis
from imir_detect.weights import huggingface
from imir_detect.weights.attention import Attention, Rotary
from imir_detect.weights.mlps import read_mlp
from imir_detect.weights.model import MLPWeights, Opaque
from imir_detect.weights.norms import read_norm
from imir_detect.weights.offloaded import current, in_memory
from imir_detect.weights.parameters import read_heads
from imir_detect.weights.raw import Norm, RawBlock, RawModel

NATIVE = "TransformerLensNative"


def read_bridge(model: Any) -> RawModel:
    """Every parameter through the bridge's own accessors, every switch from the modules themselves.

    Raises UnsupportedModelError naming the feature, and InvalidWeightsError naming the parameter.
    """
    native = model.cfg.architecture == NATIVE
    buffers: huggingface.Buffers = []
    if native:
        if model.cfg.attention_dir != "causal":
            raise UnsupportedModelError(
                "the model has bidirectional attention",
                wanted="causal attention",
                todo="nothing is guessed: this kind of model is not read",
            )
    else:
        huggingface.refuse_unread(model)
        buffers = huggingface.buffers_of(model)
    cfg = model.cfg
    before = getattr(model, "embed_ln", None)
    final = getattr(model, "ln_final", None)
    with in_memory(model.embed, before, getattr(model, "pos_embed", None)):
        W_E, W_pos = to_analysis(model.embed.W_E), _positions(model, cfg)
        if before is not None:  # a norm of each token's own row (BLOOM)
            W_E = _normed(W_E, read_norm(before, cfg.d_model, "the embedding norm"), cfg.eps)
    with in_memory(model.unembed, final):
        W_U, b_U = to_analysis(model.W_U), model.b_U
        b_U = torch.zeros(W_U.shape[1], dtype=DTYPE) if b_U is None else to_analysis(b_U)
        norm = read_norm(final, cfg.d_model, "the final norm")
    blocks = []
    for layer, block in enumerate(model.blocks):
        with in_memory(block):
            blocks.append(_block(model, layer, native, buffers))
    return RawModel(
        W_E=W_E,
        W_pos=W_pos,
        blocks=tuple(blocks),
        final=norm,
        W_U=W_U,
        b_U=b_U,
        eps=float(cfg.eps),
        n_ctx=int(cfg.n_ctx),
        parallel=_parallel(model),
    )


def _normed(rows: Tensor, norm: Norm, eps: float) -> Tensor:
    if norm.kind == "LN":
        rows = rows - rows.mean(-1, keepdim=True)
    rows = rows * (rows.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return rows * norm.gain + norm.bias


def _parallel(model: Any) -> bool:
    config = getattr(model.original_model, "config", None)
    if getattr(config, "use_parallel_residual", None) is False:
        return False
    return "Parallel" in type(model.blocks[0]).__name__ or bool(
        getattr(config, "use_parallel_residual", False)
    )


def _positions(model: Any, cfg: Any) -> Tensor:
    """The table that is added to the residual stream; no rows without one. Some families keep rows
    before position 0, which `verify` drops."""
    table = getattr(model, "pos_embed", None)
    if cfg.positional_embedding_type in ("standard", "sinusoidal"):
        if table is not None:
            return to_analysis(current(table, "W_pos"))
        for name, part in model.original_model.named_modules():
            if name.endswith("embed_positions") and isinstance(
                getattr(part, "weights", None), Tensor
            ):
                return to_analysis(part.weights)
    return torch.zeros(0, cfg.d_model, dtype=DTYPE)


def _block(model: Any, layer: int, native: bool, buffers: huggingface.Buffers) -> RawBlock:
    cfg, block = model.cfg, model.blocks[layer]
    attn = block.attn
    raw, biases = read_heads(attn, layer)
    heads, d_head = raw["Q"].shape[0], raw["Q"].shape[2]
    module = attn.original_component
    if native:
        scale, kind = float(module.scale), _native_attention(module)
    else:
        scale = huggingface.scale_of(module, huggingface.config_of(model), d_head)
        kind = huggingface.attention_of(model, buffers, layer, heads, d_head, float(cfg.eps))
    post = getattr(block, "ln1_post", None)
    ln1 = read_norm(getattr(block, "ln1", None), cfg.d_model, f"the norm before attention {layer}")
    ln2, mlp = _mlp(model, layer, ln1)
    if not native:
        share = float(getattr(huggingface.config_of(model), "residual_multiplier", None) or 1.0)
        raw["O"], biases["O"] = share * raw["O"], share * biases["O"]
        if isinstance(mlp, MLPWeights):
            mlp = replace(mlp, W_out=share * mlp.W_out, b_out=share * mlp.b_out)
    return RawBlock(
        ln1=ln1,
        W_Q=raw["Q"],
        W_K=raw["K"],
        W_V=raw["V"],
        W_O=raw["O"],
        b_Q=biases["Q"],
        b_K=biases["K"],
        b_V=biases["V"],
        b_O=biases["O"],
        scale=scale,
        attention=kind,
        post=None
        if post is None
        else read_norm(post, cfg.d_model, f"the norm after attention {layer}"),
        ln2=ln2,
        mlp=mlp,
    )


def _mlp(model: Any, layer: int, ln1: Norm) -> tuple[Norm | None, MLPWeights | Opaque | None]:
    """The norm before the MLP, and the MLP: None where the block has none."""
    block, cfg = model.blocks[layer], model.cfg
    mlp = getattr(block, "mlp", None)
    if mlp is None or getattr(cfg, "attn_only", False):
        return None, None
    before, post = getattr(block, "ln2", None), getattr(block, "ln2_post", None)
    # A parallel block without a second norm reads what attention reads.
    shared = before is None and _parallel(model)
    ln2 = ln1 if shared else read_norm(before, cfg.d_model, f"the norm of MLP {layer}")
    gain = (
        None if post is None else read_norm(post, cfg.d_model, f"the norm after MLP {layer}").gain
    )
    return ln2, read_mlp(mlp, len(model.blocks), cfg.act_fn, gain)


def _native_attention(module: Any) -> Attention:
    rotary = None
    if module.rotary is not None:
        angle = torch.atan2(module.rotary.sin_cached[1, ::2], module.rotary.cos_cached[1, ::2])
        rotary = Rotary(to_analysis(angle), adjacent=True)
    cap = float(module.attn_scores_soft_cap)
    return Attention(rotary=rotary, cap=cap if cap > 0 else None)
