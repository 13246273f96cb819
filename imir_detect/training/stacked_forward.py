"""The native model's forward pass, written for the stacked parameters of many models.

A test compares the two.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import gelu, scaled_dot_product_attention

from imir_detect.weights.native import ModelSpec

EPS = 1e-5
Stacked = dict[str, Tensor]


def forward(stack: Stacked, spec: ModelSpec, tokens: Tensor, *, first: int = 0) -> Tensor:
    """Logits (model, batch, pos, vocab) of positions `first` and later, for tokens
    (model, batch, pos)."""
    models, batch, length = tokens.shape
    heads, width = spec.n_heads, spec.head_width
    index = torch.arange(models)[:, None, None]
    x = stack["tok_embed.weight"][index, tokens]
    if spec.position == "standard":
        x = x + stack["pos.weight"][:, None, :length]
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    for layer in range(spec.n_layers):
        start = first if layer == spec.n_layers - 1 else 0  # the last layer's other places are idle
        own = f"layers.{layer}"
        y = _norm(stack, f"{own}.ln1", spec, x)

        def read(port: str, rows: Tensor, own: str = own) -> Tensor:
            out = _linear(stack, f"{own}.attn.{port}", rows)
            return out.view(models, batch, -1, heads, width).transpose(2, 3)

        q, k, v = read("q", y[:, :, start:]), read("k", y), read("v", y)
        if spec.position == "rotary":
            q, k = _rotate(q, start), _rotate(k, 0)
        mixed = scaled_dot_product_attention(
            q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), attn_mask=seen[start:]
        )
        mixed = mixed.transpose(1, 2).reshape(models, batch, -1, heads * width)
        x = x[:, :, start:] + _linear(stack, f"{own}.attn.o", mixed)
        if spec.d_mlp:
            hidden = _linear(stack, f"{own}.mlp.fc_in", _norm(stack, f"{own}.ln2", spec, x))
            x = x + _linear(stack, f"{own}.mlp.fc_out", gelu(hidden, approximate="tanh"))
    x = _norm(stack, "ln_out", spec, x)
    unembed = stack.get("head.weight", stack["tok_embed.weight"])
    flat = x.reshape(models, -1, spec.d_model) @ unembed.transpose(1, 2)
    return flat.view(*x.shape[:3], -1)


def _linear(stack: Stacked, name: str, x: Tensor) -> Tensor:
    weight, bias = stack[f"{name}.weight"], stack[f"{name}.bias"]
    flat = torch.baddbmm(bias[:, None], x.reshape(len(x), -1, x.shape[-1]), weight.transpose(1, 2))
    return flat.view(*x.shape[:-1], -1)


def _norm(stack: Stacked, name: str, spec: ModelSpec, x: Tensor) -> Tensor:
    if spec.norm is None:
        return x
    if spec.norm in ("LN", "LNPre"):
        x = x - x.mean(-1, keepdim=True)
    x = x * (x.pow(2).mean(-1, keepdim=True) + EPS).rsqrt()
    for part, apply in (("weight", torch.mul), ("bias", torch.add)):
        if f"{name}.{part}" in stack:
            x = apply(x, stack[f"{name}.{part}"][:, None, None])
    return x


def _rotate(x: Tensor, start: int) -> Tensor:
    """Rotary positions: adjacent pairs turn by place times 10000^(-2i / width)."""
    width = x.shape[-1]
    rate = 10000.0 ** (-torch.arange(0, width, 2) / width)
    angle = torch.outer(torch.arange(start, start + x.shape[-2]), rate)
    cos, sin = angle.cos(), angle.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)
