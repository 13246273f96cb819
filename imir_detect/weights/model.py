"""`ModelWeights`: a causal transformer as plain float64 tensors, norms folded.

After reading, one convention holds for every model. Gains and biases of norms stand in the weights
that follow them. Where the model uses LayerNorm, everything that writes to the residual stream is
centred over d_model, so that LayerNorm and RMSNorm become the same map: division by the root mean
square. Layers and heads count from 0; rows are vectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex
from imir_detect.errors import InvalidWeightsError
from imir_detect.linalg import DTYPE

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class MLPWeights:
    """One MLP layer: activation(x W_in + b_in) W_out + b_out, its norm folded."""

    W_in: Float[Tensor, "d_model d_mlp"]
    b_in: Float[Tensor, " d_mlp"]
    W_out: Float[Tensor, "d_mlp d_model"]
    b_out: Float[Tensor, " d_model"]
    activation: Activation


@dataclass(frozen=True)
class ModelWeights:
    """Weights of a causal transformer, folded; every stage after reading takes nothing else.

    score(i, j) = (x_i W_Q + b_Q)(x_j W_K + b_K)^T / scale, written value x_j W_V W_O, with `x` the
    residual divided by sqrt(mean(x^2) + eps) where `rms` holds. Value biases are part of b_O, since
    a row of attention sums to one.

    - W_E (vocab, d_model); W_pos (pos, d_model).
    - W_Q, W_K, W_V (layer, head, d_model, d_head); W_O (layer, head, d_head, d_model).
    - b_Q, b_K (layer, head, d_head); b_O (layer, d_model).
    - W_U (d_model, vocab_out); b_U (vocab_out).
    - scale (layer): divisor of the scores. mlps: one entry a layer, None where it has none.
    - notes: what reading did (folding, centring), for the report.

    Raises InvalidWeightsError where shapes do not fit, a dtype is not float64, or an entry is not
    finite.
    """

    W_E: Float[Tensor, "vocab d_model"]
    W_pos: Float[Tensor, "pos d_model"]
    W_Q: Float[Tensor, "layer head d_model d_head"]
    W_K: Float[Tensor, "layer head d_model d_head"]
    W_V: Float[Tensor, "layer head d_model d_head"]
    W_O: Float[Tensor, "layer head d_head d_model"]
    b_Q: Float[Tensor, "layer head d_head"]
    b_K: Float[Tensor, "layer head d_head"]
    b_O: Float[Tensor, "layer d_model"]
    W_U: Float[Tensor, "d_model vocab_out"]
    b_U: Float[Tensor, " vocab_out"]
    scale: Float[Tensor, " layer"]
    rms: bool = False
    eps: float = 1e-5
    mlps: tuple[MLPWeights | None, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.mlps:
            object.__setattr__(self, "mlps", (None,) * self.n_layers)
        _check_shapes(self)
        _check_finite(self)

    @property
    def n_layers(self) -> int:
        return self.W_Q.shape[0]

    @property
    def n_heads(self) -> int:
        return self.W_Q.shape[1]

    @property
    def d_model(self) -> int:
        return self.W_E.shape[1]

    @property
    def d_head(self) -> int:
        return self.W_Q.shape[3]

    @property
    def vocab_size(self) -> int:
        return self.W_E.shape[0]

    @property
    def vocab_out(self) -> int:
        return self.W_U.shape[1]

    @property
    def n_ctx(self) -> int:
        return self.W_pos.shape[0]

    @property
    def same_vocabulary(self) -> bool:
        """Whether an output index means the same token as an input index."""
        return self.vocab_out == self.vocab_size

    @property
    def has_mlp(self) -> bool:
        return any(mlp is not None for mlp in self.mlps)

    @property
    def heads(self) -> Iterator[HeadIndex]:
        """Every (layer, head), in order."""
        return ((layer, head) for layer in range(self.n_layers) for head in range(self.n_heads))

    def W_OV(self, layer: int, head: int) -> Float[Tensor, "d_model d_model"]:
        """The head's output-value map, dense; for small models and tests."""
        return self.W_V[layer, head] @ self.W_O[layer, head]

    def W_QK(self, layer: int, head: int) -> Float[Tensor, "d_model d_model"]:
        """The head's query-key form, dense and divided by the scale; for small models and tests."""
        return self.W_Q[layer, head] @ self.W_K[layer, head].T / self.scale[layer]

    def hash(self) -> str:
        """sha256 over every tensor, names included: the same weights, the same hash."""
        digest = hashlib.sha256()
        for name, tensor in self.tensors():
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor with its name; MLPs as `mlp.LAYER.NAME`."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, Tensor):
                yield entry.name, value
        for layer, mlp in enumerate(self.mlps):
            if mlp is not None:
                for name in ("W_in", "b_in", "W_out", "b_out"):
                    yield f"mlp.{layer}.{name}", getattr(mlp, name)


def _check_shapes(w: ModelWeights) -> None:
    if w.W_Q.ndim != 4 or w.W_E.ndim != 2:
        raise InvalidWeightsError(
            "weights have the wrong number of axes",
            got=f"W_Q {tuple(w.W_Q.shape)}, W_E {tuple(w.W_E.shape)}",
            wanted="W_Q (layer, head, d_model, d_head), W_E (vocab, d_model)",
            todo="stack the layers and split the heads",
        )
    layers, heads, d_model, d_head = w.W_Q.shape
    wanted: dict[str, tuple[int, ...]] = {
        "W_E": (w.W_E.shape[0], d_model),
        "W_pos": (w.W_pos.shape[0], d_model),
        "W_K": (layers, heads, d_model, d_head),
        "W_V": (layers, heads, d_model, d_head),
        "W_O": (layers, heads, d_head, d_model),
        "b_Q": (layers, heads, d_head),
        "b_K": (layers, heads, d_head),
        "b_O": (layers, d_model),
        "W_U": (d_model, w.W_U.shape[-1]),
        "b_U": (w.W_U.shape[-1],),
        "scale": (layers,),
    }
    for name, shape in wanted.items():
        if tuple(getattr(w, name).shape) != shape:
            raise InvalidWeightsError(
                f"{name} does not fit the other weights",
                got=str(tuple(getattr(w, name).shape)),
                wanted=str(shape),
                todo="check how the weights were stacked",
            )
    if len(w.mlps) != layers:
        raise InvalidWeightsError(
            "mlps needs one entry a layer",
            got=str(len(w.mlps)),
            wanted=str(layers),
            todo="use None",
        )


def _check_finite(w: ModelWeights) -> None:
    for name, tensor in w.tensors():
        if tensor.dtype != DTYPE:
            raise InvalidWeightsError(
                f"{name} is not float64",
                got=str(tensor.dtype),
                wanted="float64 on the CPU",
                todo="convert with imir_detect.linalg.to_analysis",
            )
        bad = int((~torch.isfinite(tensor)).sum())
        if bad:
            raise InvalidWeightsError(
                f"{name} holds numbers that are not finite",
                got=f"{bad} of {tensor.numel()} entries NaN or infinite",
                wanted="finite weights",
                todo="check the checkpoint: the run that wrote it may have diverged",
            )
