"""A model as its library holds it, and folding: the one way from there to `ModelWeights`.

Readers (one a library generation) fill a `RawModel`; they fold nothing themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.errors import UnsupportedModelError
from imir_detect.linalg import DTYPE
from imir_detect.weights.attention import Attention
from imir_detect.weights.model import MLPWeights, ModelWeights, Opaque


@dataclass(frozen=True)
class Norm:
    """A norm layer: LN centres and divides, RMS divides, none passes; then gain and bias."""

    kind: Literal["LN", "RMS", "none"]
    gain: Float[Tensor, " width"]
    bias: Float[Tensor, " width"]

    @staticmethod
    def absent(width: int) -> Norm:
        """No norm at all."""
        return Norm("none", torch.ones(width, dtype=DTYPE), torch.zeros(width, dtype=DTYPE))


@dataclass(frozen=True)
class RawBlock:
    """One layer, unfolded. Keys and values stand once for every query head that they serve.

    - W_Q, W_K, W_V (head, d_model, d_head), b_Q, b_K, b_V (head, d_head); W_O (head, d_head,
      d_model), b_O (d_model). scale: divisor of the scores.
    - ln1, ln2: before attention and before the MLP; post: after attention, None where there is
      none.
    """

    ln1: Norm
    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    b_Q: Tensor
    b_K: Tensor
    b_V: Tensor
    b_O: Tensor
    scale: float
    attention: Attention
    post: Norm | None
    ln2: Norm | None
    mlp: MLPWeights | Opaque | None


@dataclass(frozen=True)
class RawModel:
    """A whole model, unfolded; `W_pos` has no rows where positions have no table."""

    W_E: Tensor
    W_pos: Tensor
    blocks: tuple[RawBlock, ...]
    final: Norm
    W_U: Tensor
    b_U: Tensor
    eps: float
    n_ctx: int
    parallel: bool = False
    notes: tuple[str, ...] = ()


def fold(raw: RawModel) -> ModelWeights:
    """The same function with norms folded. Takes the raw tensors over: the large ones are changed
    in place, since a vocabulary of them is the better part of a model's memory.

    With norm gain g and bias b, the next weight W becomes diag(g) W and gains the bias b W. For
    LayerNorm, what writes to the residual stream and what reads from it is centred over d_model as
    well; the division by the root mean square is left to the reader (`ModelWeights.rms`). Logits
    are centred over the vocabulary, which no softmax sees.

    Raises UnsupportedModelError where LayerNorm stands beside another kind: then the mean of the
    residual stream is seen by some readers and not by others.
    """
    before: set[str] = {block.ln1.kind for block in raw.blocks}
    before |= {block.ln2.kind for block in raw.blocks if block.ln2 is not None}
    kinds: set[str] = before | {raw.final.kind}
    after = [block.post is not None for block in raw.blocks]
    if ("LN" in kinds and len(kinds) > 1) or len(before) > 1 or any(after) != all(after):
        raise UnsupportedModelError(
            "blocks and final norm are of different kinds",
            got=" and ".join(sorted(kinds)),
            wanted="LayerNorm everywhere, or RMSNorm, or the same norms in every block",
            todo="convert the model to one kind of norm first",
        )
    centred = "LN" in kinds

    def write(tensor: Tensor) -> Tensor:
        return tensor.sub_(tensor.mean(-1, keepdim=True)) if centred else tensor

    def reads(tensor: Tensor, norm: Norm) -> Tensor:
        """A weight (..., d_model, out) behind a norm: gain folded, blind to what is centred."""
        folded = norm.gain[:, None] * tensor
        return folded.sub_(folded.mean(-2, keepdim=True)) if centred else folded

    def read_all(name: str) -> Tensor:
        return torch.stack([reads(getattr(b, f"W_{name}"), b.ln1) for b in raw.blocks])

    def biases(name: str) -> Tensor:
        return torch.stack(
            [getattr(b, f"b_{name}") + b.ln1.bias @ getattr(b, f"W_{name}") for b in raw.blocks]
        )

    sinks = any(block.attention.sinks is not None for block in raw.blocks)
    b_V = biases("V")
    b_O = torch.stack([b.b_O for b in raw.blocks])
    if not sinks:
        b_O = b_O + torch.stack(
            [
                torch.einsum("hk,hkd->d", b, block.W_O)
                for b, block in zip(b_V, raw.blocks, strict=True)
            ]
        )
    b_U = raw.b_U + raw.final.bias @ raw.W_U
    W_U = raw.W_U.mul_(raw.final.gain[:, None])
    if centred:
        W_U.sub_(W_U.mean(-2, keepdim=True))
    return ModelWeights(
        W_E=write(raw.W_E),
        W_pos=write(raw.W_pos),
        W_Q=read_all("Q"),
        W_K=read_all("K"),
        W_V=read_all("V"),
        W_O=write(torch.stack([b.W_O for b in raw.blocks])),
        b_Q=biases("Q"),
        b_K=biases("K"),
        b_O=write(b_O),
        W_U=W_U.sub_(W_U.mean(1, keepdim=True)),
        b_U=b_U - b_U.mean(),
        scale=torch.tensor([b.scale for b in raw.blocks], dtype=DTYPE),
        rms=before != {"none"},
        rms_out=raw.final.kind != "none",
        eps=raw.eps,
        mlps=tuple(_folded_mlp(b, reads, write) for b in raw.blocks),
        attention=tuple(b.attention for b in raw.blocks),
        context=raw.n_ctx,
        b_V=b_V if sinks else None,
        post_gain=torch.stack([b.post.gain for b in raw.blocks if b.post]) if any(after) else None,
        parallel=raw.parallel,
        centred=centred,
        notes=(*_notes(raw, kinds, centred, sinks), *raw.notes),
    )


def _folded_mlp(
    block: RawBlock, reads: Callable[[Tensor, Norm], Tensor], write: Callable[[Tensor], Tensor]
) -> MLPWeights | Opaque | None:
    mlp, norm = block.mlp, block.ln2
    if not isinstance(mlp, MLPWeights):
        return mlp
    assert norm is not None
    gate = mlp.W_gate
    b_gate = None
    if gate is not None:
        b_gate = norm.bias @ gate if mlp.b_gate is None else mlp.b_gate + norm.bias @ gate
    return MLPWeights(
        W_in=reads(mlp.W_in, norm),
        b_in=mlp.b_in + norm.bias @ mlp.W_in,
        W_out=write(mlp.W_out),
        b_out=write(mlp.b_out),
        activation=mlp.activation,
        W_gate=None if gate is None else reads(gate, norm),
        b_gate=b_gate,
        post_gain=mlp.post_gain,
    )


def _notes(raw: RawModel, kinds: set[str], centred: bool, sinks: bool) -> tuple[str, ...]:
    notes = [] if sinks else ["value biases folded into output biases"]
    notes.append("logits centred over the vocabulary")
    if kinds != {"none"}:
        named = " and ".join(sorted(kinds - {"none"}))
        notes.append(f"{named} gains and biases folded into the weights that follow")
    if centred:
        notes.append("writing weights centred over d_model, as LayerNorm does")
    features = sorted({f for block in raw.blocks for f in block.attention.features()})
    if features:
        notes.append("attention has " + ", ".join(features))
    if raw.parallel:
        notes.append("MLPs read what the heads of their layer read")
    return tuple(notes)
