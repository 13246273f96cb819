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

from torch import Tensor

from imir_detect._typing import Float, HeadIndex, Int
from imir_detect.errors import raise_all
from imir_detect.weights.attention import Attention
from imir_detect.weights.fit import check_axes, misfits

Activation = Callable[[Tensor], Tensor]
HASHED = 4_000_000  # entries at a time


@dataclass(frozen=True)
class MLPWeights:
    """One MLP layer: activation(x W_in + b_in) W_out + b_out, its norm folded.

    With `W_gate` it is (activation(x W_gate + b_gate) * (x W_in + b_in)) W_out + b_out. With
    `post_gain` the result is divided by its root mean square and multiplied by the gain.
    """

    W_in: Float[Tensor, "d_model d_mlp"]
    b_in: Float[Tensor, " d_mlp"]
    W_out: Float[Tensor, "d_mlp d_model"]
    b_out: Float[Tensor, " d_model"]
    activation: Activation
    W_gate: Float[Tensor, "d_model d_mlp"] | None = None
    b_gate: Float[Tensor, " d_mlp"] | None = None
    post_gain: Float[Tensor, " d_model"] | None = None

    def __call__(self, x: Float[Tensor, "... d_model"], eps: float) -> Float[Tensor, "... d_model"]:
        """What the layer writes, given the normed residual."""
        inner = x @ self.W_in + self.b_in
        if self.W_gate is None:
            inner = self.activation(inner)
        else:
            gate = x @ self.W_gate
            inner = self.activation(gate if self.b_gate is None else gate + self.b_gate) * inner
        out = inner @ self.W_out + self.b_out
        if self.post_gain is None:
            return out
        return out * (out.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * self.post_gain

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor with its name."""
        named = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in named.items() if isinstance(value, Tensor)}


@dataclass(frozen=True)
class Opaque:
    """An MLP that is not read; what it does is known from running the model only."""

    reason: str


@dataclass(frozen=True)
class ModelWeights:
    """Weights of a causal transformer, folded; every stage after reading takes nothing else.

    score(i, j) = (x_i W_Q + b_Q)(x_j W_K + b_K)^T / scale, and what `Attention` adds to it; written
    value x_j W_V W_O, with `x` the residual divided by sqrt(mean(x^2) + eps) where `rms` holds.
    Value biases are part of b_O, since a row of attention sums to one (with sinks it does not, and
    b_V stands by itself).

    - W_E (vocab, d_model); W_pos (pos, d_model), no rows where positions have no table.
    - W_Q, W_K, W_V (layer, head, d_model, d_head); W_O (layer, head, d_head, d_model). Grouped
      queries: a key/value head stands once for every query head that it serves.
    - b_Q, b_K, b_V (layer, head, d_head); b_O (layer, d_model).
    - W_U (d_model, vocab_out); b_U (vocab_out).
    - scale (layer): divisor of the scores. mlps: one entry a layer, None where it has none.
    - attention: one entry a layer. context: positions, where W_pos does not tell
      or has more rows.
    - rms: norms before heads and MLPs; rms_out: before the output. post_gain (layer, d_model): gain
      of a norm after attention. parallel: the MLP reads what the heads read. centred: writing
      weights are centred over d_model (LayerNorm).
    - notes: what reading did (folding, centring), for the report.

    Raises InvalidWeightsError where shapes do not fit, a dtype is not float64, or an entry is not
    finite.

    >>> from imir_detect import read_weights, shipped_model
    >>> weights = read_weights(shipped_model("icl"))
    >>> weights.n_layers, weights.n_heads, weights.d_model, weights.vocab_size
    (2, 2, 48, 64)
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
    mlps: tuple[MLPWeights | Opaque | None, ...] = ()
    attention: tuple[Attention, ...] = ()
    context: int = 0
    rms_out: bool | None = None
    b_V: Float[Tensor, "layer head d_head"] | None = None
    post_gain: Float[Tensor, "layer d_model"] | None = None
    parallel: bool = False
    centred: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        check_axes(self)
        if not self.mlps:
            object.__setattr__(self, "mlps", (None,) * self.W_Q.shape[0])
        if not self.attention:
            object.__setattr__(self, "attention", (Attention(),) * self.W_Q.shape[0])
        if self.rms_out is None:
            object.__setattr__(self, "rms_out", self.rms)
        raise_all(misfits(self))

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return self.W_Q.shape[0]

    @property
    def n_heads(self) -> int:
        """Query heads a layer."""
        return self.W_Q.shape[1]

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""
        return self.W_E.shape[1]

    @property
    def d_head(self) -> int:
        """Width of a head."""
        return self.W_Q.shape[3]

    @property
    def vocab_size(self) -> int:
        """Number of input tokens."""
        return self.W_E.shape[0]

    @property
    def vocab_out(self) -> int:
        """Number of output tokens."""
        return self.W_U.shape[1]

    @property
    def n_ctx(self) -> int:
        """Number of positions; 0 where nothing bounds them."""
        rows = len(self.W_pos)
        return min(rows, self.context) if rows and self.context else rows or self.context

    @property
    def learned_positions(self) -> bool:
        """Whether positions have a table that is added to the residual stream."""
        return len(self.W_pos) > 0

    @property
    def plain(self) -> bool:
        """Whether attention is bilinear, with learned positions and norms only before reading."""
        every = all(kind.plain for kind in self.attention)
        return every and self.learned_positions and self.post_gain is None and not self.parallel

    @property
    def same_vocabulary(self) -> bool:
        """Whether an output index means the same token as an input index."""
        return self.vocab_out == self.vocab_size

    @property
    def has_mlp(self) -> bool:
        """Whether any layer has an MLP, read or not."""
        return any(mlp is not None for mlp in self.mlps)

    @property
    def readable(self) -> bool:
        """Whether every MLP was read, so that paths can be summed without running the model."""
        return not any(isinstance(mlp, Opaque) for mlp in self.mlps)

    @property
    def heads(self) -> Iterator[HeadIndex]:
        """Every (layer, head), in order."""
        return ((layer, head) for layer in range(self.n_layers) for head in range(self.n_heads))

    def embed(self, tokens: Int[Tensor, "... pos"]) -> Float[Tensor, "... pos d_model"]:
        """Tokens at positions 0, 1, ..., as they enter the residual stream."""
        rows = self.W_E[tokens]
        return rows + self.W_pos[: tokens.shape[-1]] if self.learned_positions else rows

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
            # A few million entries at a time: no copy of a whole vocabulary.
            size = max(1, HASHED * len(tensor) // max(1, tensor.numel()))
            for start in range(0, len(tensor), size):
                rows = tensor[start : start + size]
                digest.update(rows.contiguous().numpy().data)
        for layer, kind in enumerate(self.attention):
            if not kind.plain:
                digest.update(f"{layer}:{kind.describe()}".encode())
        return digest.hexdigest()

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor with its name; MLPs as `mlp.LAYER.NAME`."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, Tensor):
                yield entry.name, value
        for layer, mlp in enumerate(self.mlps):
            if isinstance(mlp, MLPWeights):
                for name, tensor in mlp.tensors().items():
                    yield f"mlp.{layer}.{name}", tensor
        for layer, kind in enumerate(self.attention):
            for name, tensor in kind.tensors().items():
                yield f"attention.{layer}.{name}", tensor
