"""The MLP of a block: two linear maps, a gate perhaps, and an activation; or opaque.

A mixture of experts or a very large MLP is left `Opaque`: attention is still read, and what the
MLP does is then known from running the model only. `verify` settles the activation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from imir_detect.errors import InvalidWeightsError
from imir_detect.linalg import DTYPE, to_analysis
from imir_detect.weights.model import Activation, MLPWeights, Opaque
from imir_detect.weights.offloaded import current

ACTIVATIONS: dict[str, Activation] = {
    "gelu": torch.nn.functional.gelu,
    "gelu_new": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "relu": torch.nn.functional.relu,
    "silu": torch.nn.functional.silu,
    "relu2": lambda x: torch.nn.functional.relu(x).square(),
    "solu": lambda x: x * x.softmax(-1),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}
MOST_ENTRIES = 20_000_000  # of the model's input maps; larger MLPs are not copied to float64


def read_mlp(
    mlp: Any, n_layers: int, activation: str | None, post_gain: Tensor | None
) -> MLPWeights | Opaque:
    """The weights behind `mlp.W_in` and so on.

    - n_layers: how many such MLPs the model has. activation: what its configuration calls it.
    - post_gain: gain of a norm after the MLP.
    """
    try:
        W_in, W_out = mlp.W_in, mlp.W_out
        if W_in.ndim != 2 or W_out.ndim != 2:
            return Opaque(f"{type(mlp).__name__}: not two linear maps")
        if n_layers * W_in.numel() > MOST_ENTRIES:
            return Opaque("a large MLP, known from running the model only")
        W_gate, b_gate = (
            current(mlp, name) if hasattr(mlp, name) else None for name in ("W_gate", "b_gate")
        )
        return MLPWeights(
            W_in=to_analysis(W_in),
            b_in=_or_zeros(current(mlp, "b_in"), W_in.shape[1]),
            W_out=to_analysis(W_out),
            b_out=_or_zeros(current(mlp, "b_out"), W_out.shape[1]),
            activation=ACTIVATIONS.get((activation or "gelu").lower(), ACTIVATIONS["gelu"]),
            W_gate=None if W_gate is None else to_analysis(W_gate),
            b_gate=None if b_gate is None else to_analysis(b_gate),
            post_gain=post_gain,
        )
    except (AttributeError, NotImplementedError, InvalidWeightsError, TypeError) as error:
        return Opaque(f"{type(mlp).__name__}: {error}")


def _or_zeros(bias: Tensor | None, size: int) -> Tensor:
    return torch.zeros(size, dtype=DTYPE) if bias is None else to_analysis(bias)
