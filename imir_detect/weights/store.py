"""Saved models: a folder with `model.safetensors` and `card.json`; never a pickle.

A native bridge's `state_dict` holds every tensor under several alias names. Only the parameters
are stored, once each, under plain names such as `layers.0.attn.q.weight`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from imir_detect.errors import UnreadableFileError
from imir_detect.files import write_atomically
from imir_detect.weights.legacy import to_hooked
from imir_detect.weights.native import ModelSpec

if TYPE_CHECKING:
    from transformer_lens import TransformerBridge

WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "card.json"
FORMAT = 1


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
    text = json.dumps(full, indent=2, allow_nan=False) + "\n"
    write_atomically(folder / CARD_FILE, text.encode())
    return folder


def read_card(folder: Path | str) -> dict[str, Any]:
    """The card of a saved model, checked for its format."""
    path = Path(folder) / CARD_FILE
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        spec, number = card["spec"], card["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableFileError(
            f"no readable model card at {path}",
            got=f"{type(error).__name__}: {error}",
            wanted=f"a folder that save_model wrote, with {WEIGHTS_FILE} and {CARD_FILE}",
            todo="check the path, or train the model again",
        ) from error
    if number != FORMAT or not isinstance(spec, dict):
        raise UnreadableFileError(
            f"the model card at {path} has another format",
            got=repr(number),
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
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != card.get("sha256"):
            raise UnreadableFileError(
                f"{path} is not the file its card describes",
                got="another sha256",
                wanted=wanted,
                todo="fetch or train the model again",
            )
        tensors = load(data)
        bridge = ModelSpec(**card["spec"]).boot(seed=0)
        load_parameters(bridge, tensors)
    except UnreadableFileError:
        raise
    except (OSError, SafetensorError, TypeError, ValueError) as error:
        raise UnreadableFileError(
            f"unsafe or unreadable checkpoint {path}",
            got=f"{type(error).__name__}: {error}",
            wanted=wanted,
            todo="fetch or train the model again",
        ) from error
    return bridge, card


def load_parameters(model: Any, tensors: dict[str, Tensor]) -> None:
    """Copy tensors under plain names into a model that `ModelSpec.boot` made: a native bridge, or a
    `HookedTransformer` of an older library. Every name and shape must be there, and no other."""
    if hasattr(model, "original_model"):
        own = parameters(model)
    else:
        own = dict(model.named_parameters())
        heads = model.cfg.n_heads
        tensors = to_hooked(tensors, heads, model.cfg.n_key_value_heads or heads)
        # It has biases that a native bridge has not.
        tensors = {**{n: torch.zeros_like(p) for n, p in own.items() if _optional(n)}, **tensors}
    if set(own) != set(tensors):
        odd = sorted(set(own) ^ set(tensors))
        raise ValueError(f"parameter names differ, first: {odd[:3]}")
    with torch.no_grad():
        for name, parameter in own.items():
            if parameter.shape != tensors[name].shape:
                raise ValueError(
                    f"{name} has shape {tuple(tensors[name].shape)}, not {tuple(parameter.shape)}"
                )
            parameter.copy_(tensors[name])


def _optional(name: str) -> bool:
    return name.endswith((".b_U", ".b_in", ".b_out"))
