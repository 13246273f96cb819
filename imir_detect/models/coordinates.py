"""The idealised model in coordinates: forward passes that never build a weight matrix.

With separated value maps the stream along path p is A_p F: A_p the product of attention patterns
along the path (one (T, T) matrix a sequence), F the embedding rows of the sequence. A head's score
is then

    sum over directions (q, S, k) of c  A_q K_S A_k^T,   K_S = F X^T S X F^T,

and logits are sum c A_p (F X^T S X E^T). The cost does not depend on the vocabulary. It is the
model of `imir_detect.models.idealised` with weights in the span, exactly (a test compares them).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.basis import Coefficients, Frame
from imir_detect.linalg import ROUNDOFF


@dataclass(frozen=True)
class Kernels:
    """Sequences, as a frame sees them.

    - `scores` (selection, batch, pos, pos): K_S. `readout` (selection, batch, pos, vocab).
    - `answers` (batch).
    """

    scores: Float[Tensor, "selection batch pos pos"]
    readout: Float[Tensor, "selection batch pos vocab"]
    answers: Int[Tensor, " batch"]

    @property
    def batch(self) -> int:
        return self.scores.shape[1]

    @property
    def length(self) -> int:
        return self.scores.shape[-1]


def kernels(
    frame: Frame,
    tokens: Int[Tensor, "batch pos"],
    answers: Int[Tensor, " batch"],
    positions: Int[Tensor, "batch pos"] | None = None,
    *,
    dtype: torch.dtype = torch.float64,
) -> Kernels:
    """What a frame's selections say of the given sequences."""
    if not frame.separated:
        raise InvalidArgumentError(
            "coordinates determine the model only where paths are separated",
            got="a frame with value maps that overlap",
            wanted="values=None",
            todo="use idealised(..., values='separated'), or evaluate the weights themselves",
        )
    places = torch.arange(tokens.shape[1]) if positions is None else positions
    places = (places + frame.n_tokens).expand_as(tokens)
    x = frame.embedding.double()
    gram = x @ x.T
    table = (gram @ frame.stack.double() @ gram).to(dtype)
    out = (gram @ frame.output_stack.double() @ gram[:, : frame.n_tokens]).to(dtype)
    rows = (tokens, places)
    scores = sum(table[:, a[:, :, None], b[:, None, :]] for a in rows for b in rows)
    readout = sum(out[:, a] for a in rows)
    return Kernels(scores, readout, answers)  # type: ignore[arg-type]


def start(data: Kernels) -> Float[Tensor, "batch path pos pos"]:
    """A_p of the one path into layer 0: the identity."""
    eye = torch.eye(data.length, dtype=data.scores.dtype)
    return eye.expand(data.batch, 1, -1, -1)


def needed_paths(c: Coefficients, *, prune: bool) -> tuple[Int[Tensor, " path"], ...]:
    """Paths that must be carried into every layer, and (last) to the output, by number.

    With `prune`, only those that a coefficient other than zero reads there or later, so that a
    small circuit costs little in a deep model. Never prune where gradients are wanted: a pruned
    coefficient has none.
    """
    base = c.attention[0].shape[0] + 1
    if not prune:
        return tuple(torch.arange(base**layer) for layer in range(len(c.attention) + 1))
    direct = torch.zeros(1, dtype=torch.long)
    found = [_distinct(direct, c.output.abs().sum(0).nonzero()[:, 0])]
    for layer in reversed(range(len(c.attention))):
        amount = c.attention[layer].abs().sum((0, 1))
        here = (amount.sum(0) + amount.sum(1)).nonzero()[:, 0]
        found.append(_distinct(direct, here, found[-1] % base**layer))
    return tuple(reversed(found))


def _distinct(*parts: Int[Tensor, " path"]) -> Int[Tensor, " path"]:
    return torch.unique(torch.cat(parts))


def head_scores(
    c: Float[Tensor, "selection path path"],
    carried: Float[Tensor, "*batch path pos pos"],
    scores: Float[Tensor, "selection batch pos pos"],
    *,
    last: bool = False,
) -> Float[Tensor, "*batch query pos"]:
    """Scores of one head: sum of c A_q K_S A_k^T over the directions whose c is not zero.

    Where c needs a gradient, zeros count as well.
    """
    used = c.abs() + float(c.requires_grad)
    s, q = used.sum(2).nonzero(as_tuple=True)
    k = used.sum((0, 1)).nonzero()[:, 0]
    queries = carried[..., -1:, :] if last else carried
    if not len(s):
        return queries.new_zeros(*queries.shape[:-3], *queries.shape[-2:])
    rows, size = queries.shape[-2:]
    left = queries[..., q, :, :] @ scores[s].transpose(0, 1)  # (..., (s, q), query, pos)
    mixed = c[s, q][:, k].T @ left.flatten(-2)  # (..., k, query * pos)
    mixed = mixed.reshape(*mixed.shape[:-1], rows, size).transpose(-3, -2).flatten(-2)
    return mixed @ carried[..., k, :, :].transpose(-2, -1).flatten(-3, -2)


def carry(
    carried: Float[Tensor, "*batch path pos pos"],
    scores: Float[Tensor, "*batch head query pos"],
    here: Int[Tensor, " path"],
    after: Int[Tensor, " longer"],
    base: int,
    layer: int,
    *,
    last: bool = False,
) -> Float[Tensor, "*batch longer query pos"]:
    """A_p of the paths `after`, from those of the paths `here` into `layer`.

    A path's digit of this layer says which head it goes through (0: none).
    """
    pattern = attention(scores)
    source = torch.searchsorted(here, after % base**layer)
    through = after // base**layer
    kept = carried[..., -1:, :] if last else carried
    parts = [kept[..., source[through == 0], :, :]]
    for head in range(base - 1):
        chosen = source[through == head + 1]
        parts.append(pattern[..., head, None, :, :] @ carried[..., chosen, :, :])
    return torch.cat(parts, dim=-3)


def attention(scores: Float[Tensor, "*batch query pos"]) -> Float[Tensor, "*batch query pos"]:
    """Causal softmax; the last query stands at the last position."""
    n, m = scores.shape[-2:]
    later = torch.ones(n, m, dtype=torch.bool).triu(1 + m - n)
    return scores.masked_fill(later, float("-inf")).softmax(-1)


def read_out(
    c: Float[Tensor, "selection path"],
    carried: Float[Tensor, "*batch path query pos"],
    readout: Float[Tensor, "selection batch pos vocab"],
) -> Float[Tensor, "*batch vocab"]:
    """Logits at the last position."""
    mixed = torch.einsum("sp,...pt->...st", c, carried[..., -1, :])
    return torch.einsum("...bst,sbtv->...bv", mixed, readout)


@dataclass(frozen=True)
class Pass:
    """One forward pass: `paths[l]` carried into layer l as `streams[l]`, `scores[l]` of layer l.

    `given`: the coefficients asked for; `coefficients`: the same on `paths` alone. The last
    entries of `paths` and `streams` belong to the output. Of the last layer only the last query is
    computed.
    """

    given: Coefficients
    coefficients: Coefficients
    paths: tuple[Int[Tensor, " path"], ...]
    streams: tuple[Float[Tensor, "batch path query pos"], ...]
    scores: tuple[Float[Tensor, "batch head query pos"], ...]
    logits: Float[Tensor, "batch vocab"]


def run(
    c: Coefficients,
    data: Kernels,
    *,
    prune: bool = False,
    keep_slopes: bool = False,
    earlier: Pass | None = None,
) -> Pass:
    """A forward pass. `keep_slopes`: scores require a gradient, so that it can be asked for.

    `earlier`: a pass on the same data; layers before the first that differs are taken from it.
    """
    paths = needed_paths(c, prune=prune)
    streams: list[Tensor] = [start(data)]
    scores: list[Tensor] = []
    if earlier is not None:
        streams, scores = _reuse(c, paths, earlier)
    given, c = c, restrict(c, paths)
    for layer in range(len(scores), len(c.attention)):
        found, after = layer_step(c, layer, streams[-1], data, paths, slope=keep_slopes)
        scores.append(found)
        streams.append(after)
    logits = read_out(c.output, streams[-1], data.readout)
    return Pass(given, c, paths, tuple(streams), tuple(scores), logits)


def _reuse(
    c: Coefficients, paths: tuple[Int[Tensor, " path"], ...], earlier: Pass
) -> tuple[list[Tensor], list[Tensor]]:
    """Streams and scores of an earlier pass up to the first layer that needs to run again."""
    streams: list[Tensor] = []
    scores: list[Tensor] = []
    for layer, wanted in enumerate(paths):
        if not bool(torch.isin(wanted, earlier.paths[layer]).all()):
            break
        streams.append(earlier.streams[layer][:, torch.searchsorted(earlier.paths[layer], wanted)])
        if layer == len(c.attention):
            break
        if not torch.equal(c.attention[layer], earlier.given.attention[layer]):
            break
        scores.append(earlier.scores[layer])
    return streams, scores[: len(streams) - 1]


def layer_step(
    c: Coefficients,
    layer: int,
    stream: Float[Tensor, "*batch path pos pos"],
    data: Kernels,
    paths: tuple[Int[Tensor, " path"], ...],
    *,
    slope: bool = False,
) -> tuple[Tensor, Tensor]:
    """Scores of `layer` and the stream after it; `c` restricted to `paths`."""
    last = layer == len(c.attention) - 1
    heads = [head_scores(head, stream, data.scores, last=last) for head in c.attention[layer]]
    scores = torch.stack(heads, dim=-3)
    if slope:
        scores.requires_grad_()
    base = len(heads) + 1
    return scores, carry(stream, scores, paths[layer], paths[layer + 1], base, layer, last=last)


def restrict(c: Coefficients, paths: tuple[Int[Tensor, " path"], ...]) -> Coefficients:
    """The coefficients on the given paths alone."""
    attention = tuple(a[:, :, p][..., p] for a, p in zip(c.attention, paths[:-1], strict=True))
    return Coefficients(attention, c.output[:, paths[-1]])


def logits(c: Coefficients, data: Kernels) -> Float[Tensor, "batch vocab"]:
    """Logits at the last position. Differentiable in the coefficients."""
    return run(c, data).logits


def loss(c: Coefficients, data: Kernels) -> Float[Tensor, ""]:
    """Mean cross-entropy (nats) at the last position."""
    return torch.nn.functional.cross_entropy(logits(c, data), data.answers)


def accuracy(logits: Float[Tensor, "*batch vocab"], answers: Int[Tensor, "*batch"]) -> float:
    """Share of answers whose logit is the largest. Ties, up to round-off, count as wrong."""
    right = logits.gather(-1, answers[..., None])[..., 0]
    others = logits.scatter(-1, answers[..., None], float("-inf")).max(-1).values
    return float((right - others > ROUNDOFF).double().mean())


def zeros(frame: Frame, *, dtype: torch.dtype = torch.float64) -> Coefficients:
    """All coefficients of a frame at zero."""
    s, h = len(frame.selections), frame.n_heads
    sizes = [len(frame.paths(layer)) for layer in range(frame.n_layers + 1)]
    attention = tuple(torch.zeros(h, s, n, n, dtype=dtype) for n in sizes[:-1])
    output = torch.zeros(len(frame.output_selections), sizes[-1], dtype=dtype)
    return Coefficients(attention, output)
