"""The model inside compiled and parallel wrappers."""

from __future__ import annotations

from typing import Any

import torch


def unwrap(model: Any) -> Any:
    """The model that `torch.compile`, DataParallel, DistributedDataParallel or FSDP wrap.

    >>> unwrap(torch.nn.DataParallel(torch.nn.Identity()))
    Identity()
    """
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and _parallel(model):
            inner = model.module
        if inner is None:
            return model
        model = inner


def _parallel(model: Any) -> bool:
    parallel = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    return isinstance(model, parallel) or type(model).__name__ == "FullyShardedDataParallel"
