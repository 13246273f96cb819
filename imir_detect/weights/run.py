"""Running a model without leaving a trace of it: no gradients, no mode switched, no hook left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import to_analysis
from imir_detect.weights.ablation import mean_ablation_hooks
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.offloaded import entry_device
from imir_detect.weights.unwrap import unwrap


@contextmanager
def quietly(model: Any) -> Iterator[torch.device]:
    """Evaluation mode without gradients, every module's mode put back after; gives the device on
    which tokens enter."""
    inner = getattr(model, "original_model", model)  # a bridge does not register all of it
    parts = {id(part): part for root in (model, inner) for part in root.modules()}
    training = [part for part in parts.values() if part.training]
    try:
        for part in training:
            part.training = False
        with torch.no_grad():
            yield entry_device(model)
    finally:
        for part in training:
            part.training = True


def run_logits(
    model: Any, tokens: Int[Tensor, "batch pos"], positions: Int[Tensor, "batch pos"] | None = None
) -> Float[Tensor, "batch pos vocab"]:
    """Logits of a model, on the CPU in float64.

    Raises InvalidArgumentError where positions are given to a model that takes none.
    """
    model = unwrap(model)
    with quietly(model) as device:
        inner: Any = getattr(model, "original_model", None)
        native = inner is not None and model.cfg.architecture == "TransformerLensNative"
        if positions is not None and not native:
            raise InvalidArgumentError(
                "this model is run on consecutive positions only",
                got="a task with random offsets",
                todo="use a native bridge, or a task with offsets='consecutive'",
            )
        if native:
            extra = {} if positions is None else {"position_ids": positions.to(device)}
            logits = inner(tokens.to(device), **extra)
        else:
            logits = model(tokens.to(device), return_type="logits")
    return logits.double().cpu()


def run_hooks(
    model: Any, tokens: Int[Tensor, "batch pos"], names: Collection[str]
) -> tuple[Float[Tensor, "batch pos vocab"], dict[str, Tensor]]:
    """Logits, and what passes the named hooks (those that the model has), CPU float64."""
    wanted = set(names)
    with quietly(model) as device:
        logits, cache = model.run_with_cache(
            tokens.to(device), names_filter=lambda name: name in wanted
        )
        kept = {name: cache[name].double().cpu() for name in wanted if name in cache}
    return logits.double().cpu(), kept


def run_ablated(
    model: Any, tokens: Int[Tensor, "batch pos"], heads: Collection[HeadIndex]
) -> Float[Tensor, "batch pos vocab"]:
    """Logits with the heads' outputs replaced by their mean over the batch, place by place
    (mean ablation at `hook_z`, before the output map)."""
    model = unwrap(model)
    with quietly(model) as device:
        logits = model.run_with_hooks(
            tokens.to(device),
            fwd_hooks=mean_ablation_hooks(heads, model.cfg.n_heads),
        )
    return logits.double().cpu()


class _Seen(Exception):
    """All that was asked for has passed; what the model would still compute is not needed."""


def run_residuals(
    model: Any, weights: ModelWeights, tokens: Int[Tensor, "batch pos"]
) -> list[Float[Tensor, "batch pos d_model"]]:
    """The residual stream before every layer and at the end, centred where the weights are. One
    forward pass, which ends behind the last layer: nothing is unembedded."""
    model = unwrap(model)
    names = [f"blocks.{layer}.hook_resid_pre" for layer in range(weights.n_layers)]
    names.append(f"blocks.{weights.n_layers - 1}.hook_resid_post")
    kept: dict[str, Tensor] = {}

    def keeping(name: str) -> Callable[..., None]:
        def keep(value: Tensor, hook: Any = None) -> None:
            kept[name] = to_analysis(value)
            if name == names[-1]:
                raise _Seen

        return keep

    with quietly(model) as device, suppress(_Seen):
        model.run_with_hooks(tokens.to(device), fwd_hooks=[(name, keeping(name)) for name in names])
    rows = [kept[name] for name in names]
    return [row - row.mean(-1, keepdim=True) for row in rows] if weights.centred else rows
