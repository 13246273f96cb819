"""Mean ablation of heads, as TransformerLens hooks."""

from __future__ import annotations

from collections.abc import Callable, Collection
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
    for layer in sorted({layer for layer, _ in heads}):
        index = sorted(head for at, head in heads if at == layer)

        def ablate(z: Tensor, hook: Any = None, *, index: list[int] = index) -> Tensor:
            if z.shape[0] < 2:
                raise InvalidArgumentError(
                    "the mean over a batch of one sequence ablates nothing",
                    got="1 sequence",
                    wanted="2 or more, the more the better",
                    todo="run a batch of different sequences",
                )
            flat = z.ndim == 3
            if flat and n_heads is None:
                raise InvalidArgumentError(
                    "this model keeps its heads in one axis",
                    got=f"hook_z of shape {tuple(z.shape)}",
                    wanted="the number of heads a layer",
                    todo="call hooks(n_heads=model.cfg.n_heads)",
                )
            split = z.reshape(*z.shape[:2], n_heads, -1) if flat and n_heads else z
            split = split.clone()
            split[:, :, index] = split[:, :, index].mean(0, keepdim=True)
            return split.flatten(-2) if flat else split

        hooks.append((f"blocks.{layer}.attn.hook_z", ablate))
    return hooks
