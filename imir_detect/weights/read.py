"""The front door of stage 1: any TransformerLens model to `ModelWeights`.

unwrap -> kind and stored parameters -> the reader of the library's generation -> fold -> verify
against the model's own run. What is not handled is refused by name.
"""

from __future__ import annotations

from typing import Any

from imir_detect.errors import ImirError, UnsupportedModelError, raise_all
from imir_detect.weights.admit import is_bridge, parameter_problems, refuse_other_kinds
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

    Raises UnsupportedModelError naming the feature, and InvalidWeightsError naming the parameters.

    >>> from imir_detect import read_weights, shipped_model
    >>> read_weights(shipped_model("icl")).W_Q.shape  # (layer, head, d_model, d_head)
    torch.Size([2, 2, 48, 32])
    """
    if isinstance(model, ModelWeights):
        return model
    model = unwrap(model)
    refuse_other_kinds(model)
    raise_all(parameter_problems(model))
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
    return read_bridge(model) if is_bridge(model) else read_hooked(model)
