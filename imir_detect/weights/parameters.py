"""One parameter of an attention module, read the same way from every library generation."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from imir_detect.errors import InvalidWeightsError
from imir_detect.linalg import to_analysis
from imir_detect.weights.offloaded import current


def read_parameter(attn: Any, name: str, layer: int) -> Tensor | None:
    """`attn.name` in float64, or None where the module has none.

    Raises InvalidWeightsError with the layer and the library's own words where it cannot be read.
    """
    try:
        value = current(attn, name)
        return None if value is None else to_analysis(value)
    except (InvalidWeightsError, NotImplementedError, AttributeError, RuntimeError) as error:
        raise InvalidWeightsError(
            f"block {layer}: {name} cannot be read",
            got=str(error),
            wanted="floating-point weights of the usual shape",
            todo="load the model unquantised",
        ) from error


def read_heads(attn: Any, layer: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """W_Q, W_K, W_V, W_O with one entry a query head, and b_Q, b_K, b_V, b_O, zeros where the
    module has no bias. A key/value head that serves several query heads stands once for each."""
    weights = {}
    for name in "QKVO":
        weight = read_parameter(attn, f"W_{name}", layer)
        if weight is None:
            raise InvalidWeightsError(
                f"block {layer}: W_{name} cannot be read",
                got="nothing",
                wanted="a weight for every head",
                todo="check that the checkpoint was loaded",
            )
        weights[name] = weight
    heads, d_head, d_model = weights["O"].shape
    biases = {}
    for name in "QKV":
        weights[name] = weights[name].repeat_interleave(heads // len(weights[name]), 0)
        bias = read_parameter(attn, f"b_{name}", layer)
        rows = weights["O"].new_zeros(heads, d_head) if bias is None else bias.view(-1, d_head)
        biases[name] = rows.repeat_interleave(heads // len(rows), 0)
    bias = read_parameter(attn, "b_O", layer)
    biases["O"] = weights["O"].new_zeros(d_model) if bias is None else bias
    return weights, biases
