"""One layer's arithmetic on `ModelWeights`: norms, attention, outputs, for every position kind.

Rows carry heads as (n, head, pos, d_head); `heads` names which of the layer's heads they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.arguments import shown, whole
from imir_detect.errors import InvalidArgumentError, UnsupportedModelError
from imir_detect.linalg import not_finite
from imir_detect.weights.model import ModelWeights, Opaque

FAINT = 100.0  # nats below a row's best from which attention is exactly zero
Side = Literal["Q", "K"]
SIDES: tuple[Side, Side] = ("Q", "K")


def inverse_rms(
    weights: ModelWeights, residual: Float[Tensor, "... d_model"], layer: int
) -> Float[Tensor, "... 1"]:
    """1 / sqrt(mean(x^2) + eps) before `layer` (n_layers: the output); ones without a norm."""
    normed = weights.rms_out if layer == weights.n_layers else weights.rms
    if not normed:
        return torch.ones_like(residual[..., :1])
    return (residual.pow(2).mean(-1, keepdim=True) + weights.eps).rsqrt()


def project(
    weights: ModelWeights, layer: int, side: Side, x: Float[Tensor, "n pos d_model"]
) -> Float[Tensor, "n head pos d_head"]:
    """Queries or keys of all heads before norm and rotation, biases included. One large product:
    many small ones are several times slower."""
    W, b = (weights.W_Q, weights.b_Q) if side == "Q" else (weights.W_K, weights.b_K)
    return by_head(x, W[layer]) + b[layer][:, None]


def by_head(
    x: Float[Tensor, "n pos d_model"], W: Float[Tensor, "head d_model d_head"]
) -> Float[Tensor, "n head pos d_head"]:
    """x W for every head, as one product."""
    heads, d_model, d_head = W.shape
    flat = x @ W.transpose(0, 1).reshape(d_model, heads * d_head)
    return flat.view(*x.shape[:2], heads, d_head).transpose(1, 2)


def qk_factor(
    weights: ModelWeights, layer: int, rows: Float[Tensor, "n head pos d_head"]
) -> Float[Tensor, "n head pos 1"] | None:
    """What the query-key norm multiplies these rows of all heads by; None without such a norm."""
    norm = weights.attention[layer].qk_norm
    return None if norm is None else norm.factor(rows)


def finish(
    weights: ModelWeights,
    layer: int,
    side: Side,
    rows: Float[Tensor, "n head pos d_head"],
    factor: Float[Tensor, "n head pos 1"] | None,
    heads: Sequence[int] | slice = slice(None),
    *,
    places: Tensor | None = None,
    constant: bool = True,
) -> Float[Tensor, "n head pos d_head"]:
    """Projected rows as the score multiplies them: normed by `factor`, with what positions add
    (unless `constant` is false: then the map is linear in the rows), turned; queries divided by the
    scale. `places` (pos): their positions, by default 0, 1, ..."""
    kind = weights.attention[layer]
    if kind.qk_norm is not None and factor is not None:
        gain = kind.qk_norm.query_gain if side == "Q" else kind.qk_norm.key_gain
        rows = rows * factor * gain[heads][:, None]
    if places is None:
        places = torch.arange(rows.shape[-2])
    table = kind.query_places if side == "Q" else kind.key_places
    if table is not None and constant:
        rows = rows + table[heads][:, places]
    if kind.rotary is not None:
        rows = kind.rotary.rotate(rows, places)
    return rows / weights.scale[layer] if side == "Q" else rows


def attend(
    weights: ModelWeights,
    layer: int,
    query: Float[Tensor, "n head pos d_head"],
    key: Float[Tensor, "n head pos d_head"],
    heads: Sequence[int] | slice = slice(None),
    *,
    places: Tensor | None = None,
) -> Float[Tensor, "n head query pos"]:
    """Attention patterns from finished rows: cap, ALiBi, window, sinks, softmax. `places` (query):
    positions of the queries, by default all."""
    return weigh(weights, layer, query @ key.transpose(-1, -2), heads, places=places)


def weigh(
    weights: ModelWeights,
    layer: int,
    score: Float[Tensor, "n head query pos"],
    heads: Sequence[int] | slice = slice(None),
    *,
    places: Tensor | None = None,
) -> Float[Tensor, "n head query pos"]:
    """`attend` from the products of queries and keys."""
    kind = weights.attention[layer]
    if kind.cap is not None:
        score = kind.cap * (score / kind.cap).tanh()
    bias = kind.bias(score.shape[-1])
    bias = bias if places is None else bias[:, places]
    score = score + (bias if len(bias) == 1 else bias[heads])
    return softmax(score, None if kind.sinks is None else kind.sinks[heads])


def causal_softmax(score: Float[Tensor, "... pos pos"]) -> Float[Tensor, "... pos pos"]:
    """Plain causal attention patterns from scores."""
    size = score.shape[-1]
    future = torch.ones(size, size, dtype=torch.bool).triu(1)
    return softmax(score.masked_fill(future, float("-inf")))


def softmax(
    score: Float[Tensor, "... head pos pos"], sinks: Float[Tensor, " head"] | None = None
) -> Float[Tensor, "... head pos pos"]:
    """Softmax of masked scores. What lies more than `FAINT` nats below the row's best gets exactly
    zero: it is far below round-off, and denormal numbers would slow every product that follows."""
    if sinks is not None:
        extra = sinks[:, None, None].expand(*score.shape[:-1], 1)
        score = torch.cat([score, extra], -1)
    best = score.amax(-1, keepdim=True)
    pattern = score.masked_fill(score < best - FAINT, float("-inf")).softmax(-1)
    return pattern if sinks is None else pattern[..., :-1]


def patterns(
    weights: ModelWeights, layer: int, x: Float[Tensor, "n pos d_model"]
) -> tuple[Float[Tensor, "n head pos pos"], Tensor | None, Tensor | None]:
    """Attention of all heads that read the normed residual `x`, with the factors of the query-key
    norm for queries and keys."""
    q, k = project(weights, layer, "Q", x), project(weights, layer, "K", x)
    f, g = qk_factor(weights, layer, q), qk_factor(weights, layer, k)
    query, key = finish(weights, layer, "Q", q, f), finish(weights, layer, "K", k, g)
    return attend(weights, layer, query, key), f, g


def normed(
    weights: ModelWeights, layer: int, residual: Float[Tensor, "n pos d_model"]
) -> Float[Tensor, "n pos d_model"]:
    """What a layer reads of the model's own residual stream (n_layers: what the output reads)."""
    if weights.centred:
        residual = residual - residual.mean(-1, keepdim=True)
    return residual * inverse_rms(weights, residual, layer)


def predict_attention(
    weights: ModelWeights, layer: int, residual: Float[Tensor, "n pos d_model"]
) -> Float[Tensor, "n head pos pos"]:
    """Attention of a layer's heads, predicted from the residual stream before it.

    softmax over j of cap((x_i W_Q + b_Q)(x_j W_K + b_K)^T / scale) and what positions add, with x
    the normed residual (Elhage et al. 2021; `Attention` lists what else can decide). `residual` is
    what TransformerLens calls `blocks.LAYER.hook_resid_pre`, at positions 0, 1, ...; the result is
    comparable with `blocks.LAYER.attn.hook_pattern`. From (n, pos, d_model) to (n, head, pos, pos),
    in [0, 1]; rows sum to 1, or to less where a sink takes its share.

    Raises InvalidArgumentError for what are no weights, a layer that is not there, and a residual
    stream of another shape or with entries that are not finite.

    >>> from imir_detect import read_weights, shipped_model
    >>> weights = read_weights(shipped_model("icl"))
    >>> predict_attention(weights, 0, weights.embed(torch.arange(5))[None]).shape
    torch.Size([1, 2, 5, 5])
    """
    _check_prediction(weights, layer, residual)
    return patterns(weights, layer, normed(weights, layer, residual.to(weights.W_E)))[0]


def _check_prediction(weights: Any, layer: Any, residual: Any) -> None:
    if not isinstance(weights, ModelWeights):
        raise InvalidArgumentError(
            "attention is predicted from weights",
            got=f"a {type(weights).__name__}",
            wanted="ModelWeights",
            todo="pass read_weights(model)",
        )
    number = whole(layer)
    if number is None or not 0 <= number < weights.n_layers:
        raise InvalidArgumentError(
            "the model has no such layer",
            got=f"layer={shown(layer)}",
            wanted=f"a whole number in 0 .. {weights.n_layers - 1}",
            todo="count layers from 0",
        )
    shape = tuple(getattr(residual, "shape", ()))
    if len(shape) != 3 or shape[2] != weights.d_model:
        raise InvalidArgumentError(
            "this is no residual stream of the model",
            got=f"shape {shape}",
            wanted=f"(n, pos, {weights.d_model})",
            todo=f"pass what hook blocks.{number}.hook_resid_pre gives",
        )
    if bad := not_finite(residual):
        raise InvalidArgumentError(
            "the residual stream is not finite",
            got=f"{bad} of {residual.numel()} entries NaN or infinite",
            wanted="finite numbers",
            todo="check what was run",
        )


def values(
    weights: ModelWeights, layer: int, x: Float[Tensor, "n pos d_model"]
) -> Float[Tensor, "n head pos d_head"]:
    """What every position offers to every head of a layer."""
    rows = by_head(x, weights.W_V[layer])
    return rows if weights.b_V is None else rows + weights.b_V[layer][:, None]


def post_factor(
    weights: ModelWeights, layer: int, written: Float[Tensor, "n pos d_model"]
) -> Float[Tensor, "n pos d_model"] | None:
    """What a norm after attention multiplies the layer's whole output by; None without one."""
    if weights.post_gain is None:
        return None
    factor = (written.pow(2).mean(-1, keepdim=True) + weights.eps).rsqrt()
    return factor * weights.post_gain[layer]


def mlp(
    weights: ModelWeights,
    layer: int,
    residual: Float[Tensor, "n pos d_model"],
    factor: Float[Tensor, "n pos 1"] | None = None,
) -> Float[Tensor, "n pos d_model"]:
    """What the layer's MLP writes, given the residual that it reads; zeros without one. `factor`:
    what the norm multiplies the residual by (default: what it would be for this residual).

    Raises UnsupportedModelError where the MLP was not read.
    """
    part = weights.mlps[layer]
    if part is None:
        return torch.zeros_like(residual)
    if isinstance(part, Opaque):
        raise UnsupportedModelError(
            f"the MLP of layer {layer} was not read",
            got=part.reason,
            wanted="an MLP of two linear maps and a known activation",
            todo="pass the model itself, so that it can be run",
        )
    if factor is None:
        factor = inverse_rms(weights, residual, layer)
    return part(residual * factor, weights.eps)
