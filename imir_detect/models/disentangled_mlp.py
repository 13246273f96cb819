"""The disentangled transformer's messy cousin: sums instead of concatenation, and MLPs.

Token and position embeddings and value matrices are random and stay fixed; query-key matrices,
one MLP a layer and the read-out are trained (Nichani, Damian and Lee, ICML 2024, section on
experiments). It shows that reading the graph does not hang on an orthogonal residual stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from imir_detect._typing import Float, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE, to_analysis
from imir_detect.models.disentangled import attend, future_of, without_biases
from imir_detect.weights.model import MLPWeights, ModelWeights


class AdditiveTransformer(nn.Module):
    """x_0 = E[token] + P[position]; every layer adds its heads and then an MLP.

    x <- x + sum_h softmax(x A_lh x^T, causal) x V_lh;  x <- x + relu(x W_in + b_in) W_out + b_out;
    the output is x_L[-1] W. E, P have rows of length about 1, V_lh is a random matrix with entries
    N(0, 1/d); A_lh, W_out and W start at `init_std` times standard normal draws, W_in at scale
    1 / sqrt(d).

    - `attention`: one (heads_l, d, d) parameter per layer; `readout`: (d, S).
    """

    E: Tensor
    P: Tensor
    V: Tensor
    future: Tensor

    def __init__(
        self,
        n_symbols: int,
        length: int,
        heads: Sequence[int] = (1, 1),
        *,
        d_model: int = 64,
        d_mlp: int = 64,
        init_std: float = 1e-3,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if min(n_symbols, length) < 2 or not heads or min(*heads, d_model, d_mlp) < 1:
            raise InvalidArgumentError(
                "no such additive transformer",
                got=f"n_symbols={n_symbols}, length={length}, heads={tuple(heads)}, "
                f"d_model={d_model}, d_mlp={d_mlp}",
                wanted="at least 2 symbols, 2 positions, and one of everything else",
                todo="mend these numbers",
            )
        self.n_symbols, self.length, self.heads = n_symbols, length, tuple(heads)
        generator = torch.Generator().manual_seed(seed)

        def normal(std: float, *shape: int) -> Tensor:
            return std * torch.randn(*shape, generator=generator)

        fixed = d_model**-0.5
        self.register_buffer("E", normal(fixed, n_symbols, d_model))
        self.register_buffer("P", normal(fixed, length, d_model))
        self.register_buffer("V", normal(fixed, len(heads), max(heads), d_model, d_model))
        self.attention = nn.ParameterList(
            nn.Parameter(normal(init_std, count, d_model, d_model)) for count in heads
        )
        self.W_in = nn.ParameterList(nn.Parameter(normal(fixed, d_model, d_mlp)) for _ in heads)
        self.b_in = nn.ParameterList(nn.Parameter(torch.zeros(d_mlp)) for _ in heads)
        self.W_out = nn.ParameterList(nn.Parameter(normal(init_std, d_mlp, d_model)) for _ in heads)
        self.b_out = nn.ParameterList(nn.Parameter(torch.zeros(d_model)) for _ in heads)
        self.readout = nn.Parameter(normal(init_std, d_model, n_symbols))
        self.register_buffer("future", future_of(length), persistent=False)

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch symbols"]:
        """Logits of the last position."""
        x = self.E[tokens] + self.P
        for layer, matrices in enumerate(self.attention):
            rows = x[:, -1:] if layer == len(self.attention) - 1 else x
            added = rows
            for head, matrix in enumerate(matrices):
                added = added + attend(rows, x, matrix, self.future) @ self.V[layer, head]
            hidden = torch.relu(added @ self.W_in[layer] + self.b_in[layer])
            x = added + hidden @ self.W_out[layer] + self.b_out[layer]
        return x[:, -1] @ self.readout

    @torch.no_grad()
    def to_weights(self) -> ModelWeights:
        """The same function as plain transformer weights, with W_Q = A and W_K = I. Exact."""
        layers, most, d = len(self.heads), max(self.heads), self.readout.shape[0]
        zeros = torch.zeros(layers, most, d, d, dtype=DTYPE)
        W_Q, W_O = zeros.clone(), zeros.clone()
        for layer, matrices in enumerate(self.attention):
            W_Q[layer, : len(matrices)] = to_analysis(matrices)
            W_O[layer, : len(matrices)] = to_analysis(self.V[layer, : len(matrices)])
        eye = torch.eye(d, dtype=DTYPE).expand_as(zeros).clone()
        mlps = tuple(
            MLPWeights(
                W_in=to_analysis(self.W_in[layer]),
                b_in=to_analysis(self.b_in[layer]),
                W_out=to_analysis(self.W_out[layer]),
                b_out=to_analysis(self.b_out[layer]),
                activation=nn.functional.relu,
            )
            for layer in range(layers)
        )
        return without_biases(
            "a transformer with merged query-key matrices, embedded exactly",
            W_E=to_analysis(self.E),
            W_pos=to_analysis(self.P),
            W_Q=W_Q,
            W_K=eye,
            W_V=eye.clone(),
            W_O=W_O,
            W_U=to_analysis(self.readout),
            mlps=mlps,
        )
