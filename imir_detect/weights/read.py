"""The front door of stage 1: any TransformerLens model to `ModelWeights`.

unwrap -> check for stray numbers -> the reader of the library's generation -> fold -> verify
against the model's own run. What is not handled is refused by name.
"""

from __future__ import annotations

from typing import Any

import torch

from imir_detect.errors import ImirError, InvalidWeightsError, UnsupportedModelError
from imir_detect.linalg import not_finite
from imir_detect.weights.bridge import read_bridge
from imir_detect.weights.hooked import read_hooked
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.raw import RawModel, fold
from imir_detect.weights.unwrap import unwrap
from imir_detect.weights.verify import verified


def read_weights(model: Any) -> ModelWeights:
    """The weights of a TransformerLens model, folded; `ModelWeights` pass through.

    Takes a `TransformerBridge` (3.x, 4.x; native or around a Hugging Face model) or a
    `HookedTransformer` (2.x, 3.x), compiled or wrapped or not; `fold` says what folding does. The
    model is run once on a few random tokens, and the attention, the head outputs and the logits
    that the reading predicts from the model's own residual must be the model's. It is not changed.

    Raises UnsupportedModelError naming the feature, and InvalidWeightsError naming the parameter.

    >>> from imir_detect import read_weights, shipped_model
    >>> read_weights(shipped_model("icl")).W_Q.shape  # (layer, head, d_model, d_head)
    torch.Size([2, 2, 48, 32])
    """
    if isinstance(model, ModelWeights):
        return model
    model = unwrap(model)
    _check_raw(model)
    try:
        return verified(model, fold(_raw(model)))
    except ImirError:
        raise
    except Exception as error:  # the model's own code, of any family: say what it said
        raise UnsupportedModelError(
            f"{_name_of(model)} could not be read",
            got=f"{type(error).__name__}: {error}",
            wanted="a causal decoder that runs on token ids",
            todo="try model(tokens) by itself; if that works, report the model's kind",
        ) from error


def _name_of(model: Any) -> str:
    inner = getattr(model, "original_model", None)
    return type(model if inner is None else inner).__name__


def _raw(model: Any) -> RawModel:
    if hasattr(getattr(model, "cfg", None), "architecture") and hasattr(model, "original_model"):
        return read_bridge(model)
    if type(model).__name__ == "HookedTransformer":
        return read_hooked(model)
    raise UnsupportedModelError(
        "this kind of model is not read",
        got=f"{type(model).__module__}.{type(model).__qualname__}",
        wanted="a TransformerBridge, a HookedTransformer or ModelWeights",
        todo="wrap it in a TransformerBridge, or build ModelWeights yourself",
    )


def _check_raw(model: Any) -> None:
    """Non-finite entries, named as the user knows the parameters, before anything is folded."""
    bad: dict[str, tuple[int, int]] = {}
    if not isinstance(model, torch.nn.Module):
        return
    for name, parameter in model.named_parameters():
        count = not_finite(parameter.detach())
        if count:
            bad[name.replace("._original_component", "")] = (count, parameter.numel())
    if bad:
        raise InvalidWeightsError(
            "the model holds numbers that are not finite",
            got=", ".join(
                f"{_known_as(name)}: {n} of {size} entries" for name, (n, size) in bad.items()
            ),
            wanted="finite weights",
            todo="check the checkpoint: the run that wrote it may have diverged",
        )


def _known_as(name: str) -> str:
    """`layers.1.attn.o.weight` as "block 1, W_O (layers.1.attn.o.weight)"."""
    parts = name.split(".")
    if len(parts) == 5 and parts[2] == "attn":
        letter = {"weight": "W", "bias": "b"}[parts[4]]
        return f"block {parts[1]}, {letter}_{parts[3].upper()} ({name})"
    return name
