"""Ablation of heads as TransformerLens hooks: by the mean over the batch, or by given outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch import Tensor

from imir_detect._typing import HeadIndex
from imir_detect.errors import InvalidArgumentError

Hook = tuple[str, Callable[..., Tensor]]


def mean_ablation_hooks(heads: Collection[HeadIndex], n_heads: int | None = None) -> list[Hook]:
    """(name, function) pairs that replace the heads' outputs by their mean over the batch, place by
    place, at `hook_z`, before the output map.

    `n_heads`: heads a layer, needed only where a model keeps them in one axis at `hook_z`. The
    functions raise InvalidArgumentError on a batch of one, whose mean is itself, and where
    `n_heads` is needed and missing.
    """
    hooks: list[Hook] = []
    for layer, index in by_layer(heads).items():

        def ablate(z: Tensor, hook: Any = None, *, index: list[int] = index) -> Tensor:
            if z.shape[0] < 2:
                raise InvalidArgumentError(
                    "the mean over a batch of one sequence ablates nothing",
                    got="1 sequence",
                    wanted="2 or more, the more the better",
                    todo="run a batch of different sequences",
                )
            split = split_heads(z, n_heads).clone()
            split[:, :, index] = split[:, :, index].mean(0, keepdim=True)
            return split.flatten(-2) if z.ndim == 3 else split

        hooks.append((z_name(layer), ablate))
    return hooks


def replacing_hooks(
    heads: Collection[HeadIndex], n_heads: int, given: Mapping[int, Tensor]
) -> list[Hook]:
    """(name, function) pairs that replace the heads' outputs at `hook_z` by those of `given`:
    {layer: (batch, pos, head, d_head)}, a batch of 1 for all alike."""
    hooks: list[Hook] = []
    for layer, index in by_layer(heads).items():
        values = given[layer]

        def replace(
            z: Tensor, hook: Any = None, *, index: list[int] = index, values: Tensor = values
        ) -> Tensor:
            split = split_heads(z, n_heads).clone()
            split[:, :, index] = values[:, :, index].to(split)
            return split.flatten(-2) if z.ndim == 3 else split

        hooks.append((z_name(layer), replace))
    return hooks


def z_name(layer: int) -> str:
    """Where a layer's heads give what they mixed, before the output map."""
    return f"blocks.{layer}.attn.hook_z"


def by_layer(heads: Collection[HeadIndex]) -> dict[int, list[int]]:
    """{layer: its heads}, in order."""
    return {
        layer: sorted({head for at, head in heads if at == layer})
        for layer in sorted({layer for layer, _ in heads})
    }


def split_heads(z: Tensor, n_heads: int | None) -> Tensor:
    """(batch, pos, head, d_head), from that or from all heads in one axis.

    Raises InvalidArgumentError where the number of heads is needed and missing.
    """
    if z.ndim != 3:
        return z
    if n_heads is None:
        raise InvalidArgumentError(
            "this model keeps its heads in one axis",
            got=f"hook_z of shape {tuple(z.shape)}",
            wanted="the number of heads a layer",
            todo="call hooks(n_heads=model.cfg.n_heads)",
        )
    return z.reshape(*z.shape[:2], n_heads, -1)
