"""Running a model without leaving a trace of it: no gradients, no mode switched, no hook left."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex, Int


def run_logits(
    model: Any, tokens: Int[Tensor, "batch pos"], positions: Int[Tensor, "batch pos"] | None = None
) -> Float[Tensor, "batch pos vocab"]:
    """Logits of a native bridge, on the CPU in float64."""
    device = next(iter(model.parameters())).device
    extra = {} if positions is None else {"position_ids": positions.to(device)}
    with torch.no_grad():
        return model.original_model(tokens.to(device), **extra).double().cpu()


def run_ablated(
    model: Any, tokens: Int[Tensor, "batch pos"], heads: Collection[HeadIndex]
) -> Float[Tensor, "batch pos vocab"]:
    """Logits with the heads' outputs replaced by their mean over the batch, place by place
    (mean ablation at `hook_z`, before the output map)."""
    layers = sorted({layer for layer, _ in heads})

    def ablate(z: Tensor, hook: Any) -> Tensor:
        layer = int(hook.name.split(".")[1])
        index = [h for at, h in heads if at == layer]
        flat = z.ndim == 3  # some versions keep the heads in one axis
        width = z.shape[-1] // model.cfg.n_heads if flat else z.shape[-1]
        split = z.reshape(*z.shape[:2], model.cfg.n_heads, width).clone()
        split[:, :, index] = split[:, :, index].mean(0, keepdim=True)
        return split.flatten(-2) if flat else split

    device = next(iter(model.parameters())).device
    with torch.no_grad():
        logits = model.run_with_hooks(
            tokens.to(device),
            fwd_hooks=[(f"blocks.{layer}.attn.hook_z", ablate) for layer in layers],
        )
    return logits.double().cpu()
