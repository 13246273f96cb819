"""Between the plain names that files use and the `W_Q`-style names of a `HookedTransformer`.

TransformerLens 4.x converts the other way by itself (`convert_tl_checkpoint`).
"""

from __future__ import annotations

import re

from torch import Tensor

WHOLE = {
    "tok_embed.weight": "embed.W_E",
    "pos.weight": "pos_embed.W_pos",
    "ln_out.weight": "ln_final.w",
    "ln_out.bias": "ln_final.b",
    "head.weight": "unembed.W_U",
    "head.bias": "unembed.b_U",
}
LAYER = re.compile(r"layers\.(\d+)\.(attn|mlp|ln1|ln2)\.(?:(\w+)\.)?(weight|bias)")
MLP = {"fc_in": "in", "fc_out": "out", "in": "in", "out": "out", "gate": "gate"}


def to_hooked(tensors: dict[str, Tensor], heads: int, kv_heads: int) -> dict[str, Tensor]:
    """Tensors under plain names (`layers.0.attn.q.weight`, heads joined) as a `HookedTransformer`
    names and shapes them (`blocks.0.attn.W_Q`, one axis for heads).

    Raises ValueError for a name of neither kind.
    """
    named = {}
    grouped = "_" if kv_heads != heads else ""
    for name, tensor in tensors.items():
        if name in WHOLE:
            named[WHOLE[name]] = tensor.T if name == "head.weight" else tensor
            continue
        found = LAYER.fullmatch(name)
        if found is None:
            raise ValueError(f"no parameter of a HookedTransformer is called {name}")
        layer, part, port, kind = found.groups()
        letter = "W" if kind == "weight" else "b"
        if part == "attn":
            prefix = grouped if port in "kv" else ""
            key = f"blocks.{layer}.attn.{prefix}{letter}_{port.upper()}"
            named[key] = _by_head(tensor, port, kind, kv_heads if port in "kv" else heads)
        elif part == "mlp":
            named[f"blocks.{layer}.mlp.{letter}_{MLP[port]}"] = (
                tensor.T if letter == "W" else tensor
            )
        else:
            named[f"blocks.{layer}.{part}.{letter.lower()}"] = tensor
    return {name: tensor.contiguous() for name, tensor in named.items()}


def _by_head(tensor: Tensor, port: str, kind: str, heads: int) -> Tensor:
    """A linear layer's weight (out, in) or bias with its heads apart, in row-vector convention."""
    if port == "o":
        if kind == "bias":
            return tensor
        return tensor.T.reshape(heads, -1, tensor.shape[0])
    if kind == "bias":
        return tensor.reshape(heads, -1)
    return tensor.reshape(heads, -1, tensor.shape[1]).transpose(1, 2)
