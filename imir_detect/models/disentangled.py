"""The disentangled transformer: the residual stream is a concatenation, so nothing interferes.

Nichani, Damian and Lee (ICML 2024), section 3: a token enters as one-hot token and one-hot
position; each head appends what it attended to; each head has one merged query-key matrix; the
output is a linear read-out of the last position.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from imir_detect._typing import Bool, Float, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE, to_analysis
from imir_detect.weights.model import MLPWeights, ModelWeights


class DisentangledTransformer(nn.Module):
    """L attention layers on a concatenated residual stream.

    x_0 = [one-hot token; one-hot position], width d_0 = S + T; layer l appends, for each of its
    heads h, softmax(x_l A_lh x_l^T, causal) x_l, so d_{l+1} = d_l (1 + heads_l); the output is
    x_L[-1] W with W (d_L, S). Rows are queries, columns are keys; there is no scale.

    Parameters start at `init_std` times standard normal draws (0: at zero, where the gradient of
    everything but W vanishes).

    - `attention`: one (heads_l, d_l, d_l) parameter per layer; `readout`: (d_L, S).

    >>> model = DisentangledTransformer(n_symbols=2, length=3, heads=(1, 1))
    >>> model.widths, model(torch.zeros(4, 3, dtype=torch.long)).shape
    ((5, 10, 20), torch.Size([4, 2]))
    """

    future: Tensor

    def __init__(
        self,
        n_symbols: int,
        length: int,
        heads: Sequence[int] = (1, 1),
        *,
        init_std: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if n_symbols < 2 or length < 2 or not heads or min(heads) < 1:
            raise InvalidArgumentError(
                "no such disentangled transformer",
                got=f"n_symbols={n_symbols}, length={length}, heads={tuple(heads)}",
                wanted="at least 2 symbols, 2 positions and one layer, every layer with a head",
                todo="mend these numbers",
            )
        self.n_symbols, self.length, self.heads = n_symbols, length, tuple(heads)
        generator = torch.Generator().manual_seed(seed)

        def start(*shape: int) -> nn.Parameter:
            return nn.Parameter(init_std * torch.randn(*shape, generator=generator))

        self.attention = nn.ParameterList(
            start(count, width, width) for count, width in zip(heads, self.widths, strict=False)
        )
        self.readout = nn.Parameter(start(self.widths[-1], n_symbols))
        self.register_buffer("future", future_of(length), persistent=False)

    @property
    def widths(self) -> tuple[int, ...]:
        """d_0 .. d_L."""
        widths = [self.n_symbols + self.length]
        for count in self.heads:
            widths.append(widths[-1] * (1 + count))
        return tuple(widths)

    def embed(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_0"]:
        """x_0."""
        dtype = self.readout.dtype
        token = nn.functional.one_hot(tokens, self.n_symbols).to(dtype)
        place = torch.eye(self.length, dtype=dtype).expand(tokens.shape[0], -1, -1)
        return torch.cat([token, place], -1)

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch symbols"]:
        """Read-out of the last position (logits, or frequencies: see `training.causal`)."""
        x = self.embed(tokens)
        for layer, matrices in enumerate(self.attention):
            last_layer = layer == len(self.attention) - 1
            x = self._attend(x, matrices, only_last=last_layer)
        return x[:, -1] @ self.readout

    def _attend(self, x: Tensor, matrices: Tensor, *, only_last: bool) -> Tensor:
        """The next stream; with `only_last` for the last position alone."""
        rows = x[:, -1:] if only_last else x
        return torch.cat([rows, *(attend(rows, x, m, self.future) for m in matrices)], -1)

    @torch.no_grad()
    def to_weights(self) -> ModelWeights:
        """The same function as plain transformer weights: exact, nothing is approximated.

        d_model = d_L: the concatenation becomes a sum of orthogonal subspaces. Token and position
        embeddings are unit vectors; head (l, h) reads the first d_l coordinates, W_QK = A_lh with
        scale 1, and writes them, moved, to a block of its own. Layers with fewer heads are filled
        up with heads that attend evenly and write nothing.
        """
        d_model, d_head = self.widths[-1], self.widths[-2]
        layers, most = len(self.heads), max(self.heads)
        zeros = torch.zeros(layers, most, d_model, d_head, dtype=DTYPE)
        W_Q, W_K, W_V, W_O = (zeros.clone() for _ in range(4))
        W_O = W_O.transpose(2, 3).contiguous()
        for layer, matrices in enumerate(self.attention):
            width = self.widths[layer]
            eye = torch.eye(width, dtype=DTYPE)
            for head, matrix in enumerate(matrices):
                W_Q[layer, head, :width, :width] = to_analysis(matrix)
                W_K[layer, head, :width, :width] = eye
                W_V[layer, head, :width, :width] = eye
                W_O[layer, head, :width, width * (1 + head) : width * (2 + head)] = eye
        unit = torch.eye(d_model, dtype=DTYPE)
        return without_biases(
            "a disentangled transformer, embedded exactly",
            W_E=unit[: self.n_symbols].clone(),
            W_pos=unit[self.n_symbols : self.widths[0]].clone(),
            W_Q=W_Q,
            W_K=W_K,
            W_V=W_V,
            W_O=W_O,
            W_U=to_analysis(self.readout),
        )


# -- shared with the additive model ---------------------------------------------------------------


def future_of(length: int) -> Bool[Tensor, "pos pos"]:
    """True where a key stands after the query."""
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def attend(rows: Tensor, x: Tensor, matrix: Tensor, future: Tensor) -> Tensor:
    """softmax(rows A x^T, causal) x; the rows are the last ones of x."""
    scores = (rows @ matrix) @ x.transpose(1, 2)
    return scores.masked_fill(future[-rows.shape[1] :], -torch.inf).softmax(-1) @ x


def without_biases(
    note: str,
    *,
    W_E: Tensor,
    W_pos: Tensor,
    W_Q: Tensor,
    W_K: Tensor,
    W_V: Tensor,
    W_O: Tensor,
    W_U: Tensor,
    mlps: tuple[MLPWeights, ...] = (),
) -> ModelWeights:
    """Plain weights with scale 1 and no biases."""
    layers, heads, d_model, d_head = W_Q.shape
    return ModelWeights(
        W_E=W_E,
        W_pos=W_pos,
        W_Q=W_Q,
        W_K=W_K,
        W_V=W_V,
        W_O=W_O,
        W_U=W_U,
        b_Q=torch.zeros(layers, heads, d_head, dtype=DTYPE),
        b_K=torch.zeros(layers, heads, d_head, dtype=DTYPE),
        b_O=torch.zeros(layers, d_model, dtype=DTYPE),
        b_U=torch.zeros(W_U.shape[1], dtype=DTYPE),
        scale=torch.ones(layers, dtype=DTYPE),
        mlps=mlps,
        notes=(note,),
    )
