"""Running a model without leaving a trace of it: no gradients, no mode switched, no hook left."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex, Int
from imir_detect.weights.ablation import mean_ablation_hooks


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
    device = next(iter(model.parameters())).device
    with torch.no_grad():
        logits = model.run_with_hooks(
            tokens.to(device),
            fwd_hooks=mean_ablation_hooks(heads, model.cfg.n_heads),
        )
    return logits.double().cpu()
