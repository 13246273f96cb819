"""What is asked of a model before any of it is read: its kind, and every parameter as it is stored.

All of it is looked at before anything is raised, so that a checkpoint with three faults is told of
three faults at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from imir_detect.errors import ImirError, InvalidWeightsError, UnsupportedModelError, some
from imir_detect.linalg import not_finite
from imir_detect.weights.offloaded import stored_parameters

READ = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MOST = 100  # parameters named in one message
WANTED = "a TransformerBridge, a HookedTransformer or ModelWeights"


def is_bridge(model: Any) -> bool:
    """Whether it is a `TransformerBridge`."""
    return hasattr(getattr(model, "cfg", None), "architecture") and hasattr(model, "original_model")


def refuse_other_kinds(model: Any) -> None:
    """Raise UnsupportedModelError for what is no model of a kind that is read; the text says how
    to come from there to one that is."""
    kind = type(model)
    if not isinstance(model, type) and (is_bridge(model) or kind.__name__ == "HookedTransformer"):
        return
    name = f"{kind.__module__}.{kind.__qualname__}"
    todo = "wrap it in a TransformerBridge, or build ModelWeights yourself"
    if model is None:
        name, todo = "None", "pass the model itself"
    elif isinstance(model, type):
        name = f"the class {model.__qualname__}"
        todo = "make an instance of it and pass that"
    elif isinstance(model, str | Path):
        name = f"the text {str(model)[:60]!r}"
        todo = "open it first: open_model(name), or shipped_model(name) for one of ours"
    elif isinstance(model, Mapping):
        name = f"a mapping ({kind.__name__})"
        todo = "a state dict needs its configuration: model_from_state_dict(state, config)"
    elif isinstance(model, list | tuple):
        name, todo = f"a {kind.__name__} of {len(model)}", "pass one model at a time"
    elif callable(getattr(model, "save_pretrained", None)):
        if isinstance(model, torch.nn.Module):
            todo = "TransformerBridge.boot_transformers(name, hf_model=model) makes one"
        else:
            name, todo = f"{name}, a tokenizer or a configuration", "pass the model itself"
    raise UnsupportedModelError(
        "this kind of model is not read", got=name, wanted=WANTED, todo=todo
    )


def parameter_problems(model: torch.nn.Module) -> list[ImirError]:
    """Every fault of the parameters as they are stored, named as the user knows them: no data, a
    form or a number type that is not read, entries that are not finite. A parameter is told of its
    first fault only."""
    bad: list[list[str]] = [[] for _ in FAULTS]
    for name, tensor in stored_parameters(model):
        for fault, told in zip(FAULTS, bad, strict=True):
            if text := fault.says(tensor):
                told.append(f"{_known_as(name.replace('._original_component', ''))}: {text}")
                break
    return [
        InvalidWeightsError(fault.what, got=some(told, MOST), wanted=fault.wanted, todo=fault.todo)
        for fault, told in zip(FAULTS, bad, strict=True)
        if told
    ]


class Fault(NamedTuple):
    """What can be wrong with a parameter; `says` gives words where it is."""

    what: str
    says: Callable[[Tensor], str]
    wanted: str
    todo: str


FAULTS = (
    Fault(
        "the model has parameters without data",
        lambda t: "on the meta device" if t.is_meta else "",
        "weights in memory, or offloaded by accelerate, whose hooks fetch them",
        "load the checkpoint, or materialise the model with to_empty and load_state_dict",
    ),
    Fault(
        "the model's weights are stored in a form that is not read",
        lambda t: "" if t.layout == torch.strided else str(t.layout),
        "dense tensors",
        "call to_dense() on them",
    ),
    Fault(
        "the model's weights are not floating-point numbers of a usual kind",
        lambda t: "" if t.dtype in READ else f"{t.dtype} {tuple(t.shape)}",
        "float16, bfloat16, float32 or float64",
        "load the model unquantised, or dequantise it first",
    ),
    Fault(
        "the model holds numbers that are not finite",
        lambda t: f"{n} of {t.numel()} entries" if (n := not_finite(t)) else "",
        "finite weights",
        "check the checkpoint: the run that wrote it may have diverged",
    ),
)


def _known_as(name: str) -> str:
    """`layers.1.attn.o.weight` as "block 1, W_O (layers.1.attn.o.weight)"."""
    parts = name.split(".")
    if len(parts) == 5 and parts[2] == "attn" and parts[4] in ("weight", "bias"):
        letter = {"weight": "W", "bias": "b"}[parts[4]]
        return f"block {parts[1]}, {letter}_{parts[3].upper()} ({name})"
    return name
