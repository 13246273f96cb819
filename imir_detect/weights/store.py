"""Saved models: a folder with `model.safetensors` and `card.json`; never a pickle.

A native bridge's `state_dict` holds every tensor under several alias names. Only the parameters
are stored, once each, under plain names such as `layers.0.attn.q.weight`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from imir_detect.errors import UnreadableFileError, some
from imir_detect.files import write_atomically
from imir_detect.strict import (
    ANY,
    COUNT,
    NUMBER,
    TEXT,
    Shape,
    check_shape,
    json_text,
    read_file,
    read_json,
)
from imir_detect.weights.admit import READ
from imir_detect.weights.legacy import to_hooked
from imir_detect.weights.native import ModelSpec

if TYPE_CHECKING:
    from transformer_lens import TransformerBridge

WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "card.json"
FORMAT = 1
CARD: Shape = {  # what is asked of a card; whatever else stands on it is its writer's
    "format": ANY,
    "spec": {"d_vocab": ANY, "n_ctx": ANY},
    "sha256": TEXT,
    "name?": TEXT,
    "label?": TEXT,
    "measured?": {str: NUMBER},
    "task?": {"name": TEXT, "knobs": {str: ANY}},
    "heads?": [
        {
            **dict.fromkeys(("layer", "head"), COUNT),
            **dict.fromkeys(("back", "copy", "answer", "cost", "cost_back"), NUMBER),
        }
    ],
}


def parameters(bridge: TransformerBridge) -> dict[str, torch.nn.Parameter]:
    """Every parameter of a native bridge once, under its plain name."""
    return {
        name.replace("._original_component", ""): parameter
        for name, parameter in bridge.named_parameters()
    }


def save_model(
    bridge: TransformerBridge,
    spec: ModelSpec,
    folder: Path | str,
    card: dict[str, Any] | None = None,
) -> Path:
    """Save a native model as safetensors with a card in JSON; returns the folder.

    - bridge: the model, a native `TransformerBridge`; spec: the `ModelSpec` that it was made from.
    - folder: is made where it is not there; each file is replaced as a whole.
    - card: what the caller knows of the model (task, recipe, behaviour measured), JSON types only;
      the specification, a format number and the sha256 of the weights file are added.

    Raises ValueError for a card with a number that is not finite.

    >>> from tempfile import mkdtemp
    >>> from imir_detect.weights.native import ModelSpec
    >>> spec = ModelSpec(d_vocab=8, n_ctx=4, n_layers=1, n_heads=1, d_model=8)
    >>> folder = save_model(spec.boot(seed=0), spec, mkdtemp(), {"label": "none"})
    >>> sorted(file.name for file in folder.iterdir())
    ['card.json', 'model.safetensors']
    """
    folder = Path(folder)
    tensors = {k: p.detach().cpu().contiguous() for k, p in sorted(parameters(bridge).items())}
    data = save(tensors)
    write_atomically(folder / WEIGHTS_FILE, data)
    full = {
        **(card or {}),
        "format": FORMAT,
        "spec": asdict(spec),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    write_atomically(folder / CARD_FILE, json_text(full, indent=2).encode())
    return folder


def read_card(folder: Path | str) -> dict[str, Any]:
    """The card of a saved model, checked for its format."""
    path = Path(folder) / CARD_FILE
    try:
        card = read_json(path)
        check_shape(card, CARD, "the card")
    except (OSError, ValueError, TypeError) as error:
        raise UnreadableFileError(
            f"no readable model card at {path}",
            got=f"{type(error).__name__}: {error}",
            wanted=f"a folder that save_model wrote, with {WEIGHTS_FILE} and {CARD_FILE}",
            todo="check the path, or train the model again",
        ) from error
    if card["format"] != FORMAT or isinstance(card["format"], bool):
        raise UnreadableFileError(
            f"the model card at {path} has another format",
            got=repr(card["format"]),
            wanted=repr(FORMAT),
            todo="load it with the version of imir-detect that wrote it",
        )
    return card


def load_model(folder: Path | str) -> tuple[Any, dict[str, Any]]:
    """A saved model and its card, from the folder that `save_model` wrote.

    Raises UnreadableFileError where the card or the weights are not there or cannot be read, and
    where the weights are not those that the card describes.

    >>> from imir_detect.zoo import shipped_folder
    >>> load_model(shipped_folder("icl"))[1]["label"]
    'icl'
    """
    folder = Path(folder)
    card = read_card(folder)
    path = folder / WEIGHTS_FILE
    wanted = "the file that the card describes"
    try:
        data = read_file(path)
        if hashlib.sha256(data).hexdigest() != card.get("sha256"):
            raise UnreadableFileError(
                f"{path} is not the file its card describes",
                got="another sha256",
                wanted=wanted,
                todo="fetch or train the model again",
            )
        bridge = boot_with(ModelSpec(**card["spec"]), load(data))
    except UnreadableFileError:
        raise
    except (OSError, SafetensorError, TypeError, ValueError, KeyError, RuntimeError) as error:
        raise UnreadableFileError(
            f"unsafe or unreadable checkpoint {path}",
            got=f"{type(error).__name__}: {error}",
            wanted=wanted,
            todo="fetch or train the model again",
        ) from error
    return bridge, card


def boot_with(spec: ModelSpec, tensors: Mapping[str, Tensor]) -> Any:
    """A model of this specification with these tensors, under plain names. Raises ValueError where
    they do not fit; a specification that asks for more numbers than there are is never built."""
    there = sum(tensor.numel() for tensor in tensors.values())
    if spec.least_size > there:
        raise ValueError(
            f"the specification asks for at least {spec.least_size} numbers, {there} are there"
        )
    model = spec.boot(seed=0)
    load_parameters(model, tensors)
    return model


def load_parameters(model: Any, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors under plain names into a model that `ModelSpec.boot` made: a native bridge, or a
    `HookedTransformer` of an older library. Every name and shape must be there, and no other.

    Raises ValueError that names everything that does not fit.
    """
    wrong = [f"{name} is {odd}" for name, tensor in tensors.items() if (odd := odd_form(tensor))]
    if wrong:
        raise ValueError(some(wrong, joint="; "))
    if hasattr(model, "original_model"):
        own = parameters(model)
    else:
        own = dict(model.named_parameters())
        heads = model.cfg.n_heads
        tensors = to_hooked(dict(tensors), heads, model.cfg.n_key_value_heads or heads)
        # It has biases that a native bridge has not.
        tensors = {**{n: torch.zeros_like(p) for n, p in own.items() if _optional(n)}, **tensors}
    missing, unknown = sorted(set(own) - set(tensors)), sorted(set(tensors) - set(own))
    wrong += [f"{len(missing)} parameters are missing: {some(missing)}"] if missing else []
    wrong += [f"{len(unknown)} are unknown: {some(unknown)}"] if unknown else []
    wrong += [
        f"{name} has shape {tuple(tensors[name].shape)}, not {tuple(parameter.shape)}"
        for name, parameter in own.items()
        if name in tensors and parameter.shape != tensors[name].shape
    ]
    if wrong:
        raise ValueError(some(wrong, joint="; "))
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[name])


def odd_form(tensor: Tensor) -> str:
    """What keeps a tensor from being a weight as it is stored; empty where nothing does."""
    if tensor.dtype not in READ:
        return f"{tensor.dtype}, not a floating-point number of a usual kind"
    if tensor.layout != torch.strided or tensor.is_meta:
        return "without data" if tensor.is_meta else f"{tensor.layout}, not dense"
    return ""


def _optional(name: str) -> bool:
    return name.endswith((".b_U", ".b_in", ".b_out"))
