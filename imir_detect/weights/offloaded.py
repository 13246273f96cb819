"""Models spread by `device_map`: where tokens enter, and parameters that are not in memory.

What fits on no device is offloaded: the module holds an empty parameter on `meta`, and a hook of
accelerate's fetches the stored one (from memory, or from a file) while the module runs. The same
hooks are asked here, one part of the model at a time. Nothing is imported for it: who has no such
hook has no such parameter.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

HOOK = "_hf_hook"  # where accelerate keeps a module's hook


def fetcher(module: torch.nn.Module) -> Any:
    """The hook that fetches a module's own parameters; None where they are in memory."""
    waiting = [getattr(module, HOOK, None)]
    while waiting:
        hook = waiting.pop()
        waiting += getattr(hook, "hooks", ())  # several in a row
        if getattr(hook, "offload", False) and getattr(hook, "weights_map", None) is not None:
            return hook
    return None


@contextmanager
def in_memory(*parts: torch.nn.Module | None) -> Iterator[None]:
    """Offloaded parameters of these parts, fetched; put away again after."""
    there = [part for part in parts if part is not None]
    with ExitStack() as stack:
        for module in dict.fromkeys(module for part in there for module in part.modules()):
            hook = fetcher(module)
            if hook is not None:
                hook.pre_forward(module)
                stack.callback(hook.post_forward, module, None)
        yield


def current(part: Any, name: str) -> Any:
    """`part.name`. A component of a bridge keeps some parameters under a second name, as the
    objects that they were when it was made: of offloaded ones these stay empty, and the path behind
    the name is followed anew."""
    value = getattr(part, name)
    path = getattr(part, "property_aliases", {}).get(name)
    if isinstance(value, Tensor) and value.is_meta and path is not None:
        value = part
        for step in path.split("."):
            value = getattr(value, step)
    return value


def stored_parameters(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every parameter with its name, offloaded ones fetched one at a time; on `meta` stay those
    that nothing can fetch."""
    inner = getattr(model, "original_model", model)  # a bridge does not register all of it
    holders = {
        id(parameter): (module, name)
        for root in (model, inner)
        for module in root.modules()
        for name, parameter in module.named_parameters(recurse=False)
    }
    for name, parameter in model.named_parameters():
        value = parameter.detach()
        if value.is_meta and id(parameter) in holders:
            module, own = holders[id(parameter)]
            hook = fetcher(module)
            value = value if hook is None else hook.weights_map[own]
        yield name, value


def entry_device(model: torch.nn.Module) -> torch.device:
    """The device on which tokens enter: that of the input embedding, or the one that an offloaded
    embedding is fetched to."""
    embedding = getattr(model, "embed", model)
    for module in embedding.modules():
        own = next(iter(module.parameters(recurse=False)), None)
        if own is not None:
            hook = fetcher(module) if own.is_meta else None
            place = getattr(hook, "execution_device", None)
            return own.device if place is None else torch.device(place)
    return next(iter(model.parameters())).device


def bare_copy(module: torch.nn.Module) -> torch.nn.Module:
    """A copy without hooks of accelerate's, which would move what enters it to another device; of
    the parameters as they are in memory."""
    hooks = [getattr(part, HOOK, None) for part in module.modules()]
    copied = copy.deepcopy(module, {id(hook): None for hook in hooks if hook is not None})
    for part in copied.modules():
        if HOOK in vars(part):
            for name in (HOOK, "forward", "_old_forward"):
                vars(part).pop(name, None)
    return copied
