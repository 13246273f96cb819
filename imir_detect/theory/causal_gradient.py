"""The gradient of layer 0 at initialisation reads the latent graph, before any training.

Setting of Nichani, Damian and Lee (ICML 2024): the disentangled transformer with layer 0 at zero
(uniform attention) and layer 1 a match of token identity; prediction f + eps with f the attended
frequencies. Position block of layer 0, rows = children, columns = candidates for the parent.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE

CHUNK = 8192  # sequences held at once


@dataclass(frozen=True)
class LayerZeroGradient:
    """Minus the loss gradient, and its standard error, of k heads' position blocks.

    `value`, `error` (k, pos, pos), zero above the diagonal. Unit: nats of loss per nat of score.
    """

    value: Float[Tensor, "k pos pos"]
    error: Float[Tensor, "k pos pos"]

    def excess(self, n_symbols: int) -> Float[Tensor, "k pos pos"]:
        """`value` times S T (i + 1): near q_ij less its row's mean, see `closed_form`."""
        length = self.value.shape[-1]
        return self.value * n_symbols * length * torch.arange(1, length + 1)[:, None]


def layer0_gradient(
    tokens: Int[Tensor, "batch pos"],
    rows: Float[Tensor, "batch symbols"],
    *,
    queries: int = 1,
    match: float = 1.0,
    eps: float = 0.0,
) -> LayerZeroGradient:
    """The gradient at initialisation, written out by hand (the tests hold it to autograd).

    With e_j = [x_j = query], y_i the mean of e over positions up to i, a = softmax(match y),
    f = sum_i a_i [x_i], r(s) = pi(s | query) / (f(s) + eps):
    - dL/dA_ij = E[ match a_i (r(x_i) - sum_s f(s) r(s)) (e_j - y_i) / (i + 1) ].

    - `tokens`: sequences whose last `queries` tokens are the query; `rows`: the target row, or a
      one-hot draw from it (the same in expectation, noisier).
    - `queries` k > 1: k heads in layer 0, head m matched to the m-th query token.
    """
    _check_sequences(tokens, rows)
    n, length = tokens.shape
    steps = torch.arange(1, length + 1, dtype=DTYPE)
    total = torch.zeros(queries, length, length, dtype=DTYPE)
    squares = torch.zeros_like(total)
    for start in range(0, n, CHUNK):
        x, row = tokens[start : start + CHUNK], rows[start : start + CHUNK].to(DTYPE)
        same = (x[:, :, None] == x[:, None, -queries:]).to(DTYPE)
        share = same.cumsum(1) / steps[:, None]
        attention = (match * share.sum(-1)).softmax(-1)
        frequency = torch.zeros_like(row).scatter_add_(1, x, attention)
        ratio = (row / (frequency + eps)).masked_fill(frequency == 0, 0.0)
        surplus = ratio.gather(1, x) - (ratio * frequency).sum(-1, keepdim=True)
        weight = match * attention * surplus / steps
        for head in range(queries):
            e, y = same[..., head], share[..., head]
            total[head] += weight.T @ e - (weight * y).sum(0)[:, None]
            w2 = weight.square()
            squares[head] += w2.T @ e - 2 * (w2 * y).T @ e + (w2 * y.square()).sum(0)[:, None]
    mean = total / n
    error = ((squares / n - mean.square()).clamp(min=0) / n).sqrt()
    return LayerZeroGradient(mean.tril(), error.tril())


def mean_ratio(
    tokens: Int[Tensor, "batch pos"],
    transitions: Float[Tensor, "batch symbols symbols"],
    *,
    eps: float = 0.0,
) -> tuple[Float[Tensor, "node node"], Float[Tensor, " node"]]:
    """(q, c) over the nodes: q_ij = E[pi(x_i | x_j) / (f(x_i) + eps)] and what the read-out costs.

    f are the frequencies of the whole sequence when its last token, the query, is x_j: the query
    is one of the T tokens that layer 1 attends to. Leaving that token as drawn moves q by order
    1 / T, enough to lower the correlation with the gradient on sparse forests. c_j =
    E[sum_s pi(s | x_j) f(s) / (f(s) + eps)] would be 1 if every symbol were seen and eps were 0.
    """
    _check_sequences(tokens, transitions[:, 0])
    n, length = tokens.shape
    symbols = transitions.shape[-1]
    nodes = length - 1
    q = torch.zeros(nodes, nodes, dtype=DTYPE)
    c = torch.zeros(nodes, dtype=DTYPE)
    eye = torch.eye(symbols, dtype=DTYPE)
    for start in range(0, n, CHUNK):
        x = tokens[start : start + CHUNK, :nodes]
        one_hot = torch.nn.functional.one_hot(x, symbols).to(DTYPE)
        # axes: sequence, query, symbol
        frequency = (one_hot.sum(1)[:, None] + eye) / length
        ratio = transitions[start : start + CHUNK].to(DTYPE) / (frequency + eps)
        ratio = ratio.masked_fill(frequency == 0, 0.0)
        at_child = ratio.transpose(1, 2)[torch.arange(len(x))[:, None], x]
        q += torch.einsum("biq,bjq->ij", at_child, one_hot)
        c += torch.einsum("bq,bjq->j", (ratio * frequency).sum(-1), one_hot)
    return q / n, c / n


def closed_form(
    q: Float[Tensor, "node node"], c: Float[Tensor, " node"] | None = None
) -> Float[Tensor, "node node"]:
    """(z_ij - mean of z_i0 .. z_ii) / (i + 1), z = q - c; the gradient up to the factor 1 / (S T).

    Exact in expectation as the match tends to 0. The source's form has c = 1: leave it out.
    """
    z = (q if c is None else q - c).tril()
    steps = torch.arange(1, len(z) + 1, dtype=z.dtype)[:, None]
    return ((z - z.sum(1, keepdim=True) / steps) / steps).tril()


def causal_correlation(
    a: Float[Tensor, "pos pos"], b: Float[Tensor, "pos pos"], *, strict: bool = False
) -> float:
    """Pearson correlation of two tables over the entries with j <= i (`strict`: j < i)."""
    size = min(len(a), len(b))
    mask = torch.ones(size, size, dtype=torch.bool).tril(-1 if strict else 0)
    both = torch.stack([a[:size, :size][mask], b[:size, :size][mask]])
    return float(torch.corrcoef(both)[0, 1])


def _check_sequences(tokens: Tensor, rows: Tensor) -> None:
    symbols = rows.shape[-1]
    if tokens.ndim != 2 or rows.ndim != 2 or len(tokens) != len(rows) or len(tokens) < 2:
        raise InvalidArgumentError(
            "tokens and target rows do not belong together",
            got=f"tokens {tuple(tokens.shape)}, rows {tuple(rows.shape)}",
            wanted="(batch, pos) and (batch, symbols), at least 2 sequences",
            todo="pass one target row a sequence",
        )
    if tokens.is_floating_point() or int(tokens.min()) < 0 or int(tokens.max()) >= symbols:
        raise InvalidArgumentError(
            "tokens are no symbols of the target rows",
            got=f"{tokens.dtype} from {tokens.min()} to {tokens.max()}",
            wanted=f"whole numbers from 0 to {symbols - 1}",
            todo="number the symbols from 0",
        )
