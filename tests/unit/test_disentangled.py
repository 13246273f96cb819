"""The disentangled transformer against literal loops, and its exact embedding in plain weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from imir_detect.errors import InvalidArgumentError
from imir_detect.models.disentangled import DisentangledTransformer
from imir_detect.models.disentangled_mlp import AdditiveTransformer
from imir_detect.weights.model import ModelWeights

SHAPES = [(1,), (1, 1), (2, 1), (1, 2, 1)]


def literal(model: DisentangledTransformer, tokens: list[int]) -> list[float]:
    """One sequence with lists and loops, straight from the definition."""
    rows = [
        [float(t == s) for s in range(model.n_symbols)]
        + [float(i == p) for p in range(model.length)]
        for i, t in enumerate(tokens)
    ]
    for matrices in model.attention:
        grown = []
        for i, row in enumerate(rows):
            new = list(row)
            for matrix in matrices.tolist():  # type: ignore[union-attr]
                query = [sum(a * matrix[u][v] for u, a in enumerate(row)) for v in range(len(row))]
                scores = [
                    sum(q * k for q, k in zip(query, rows[j], strict=True)) for j in range(i + 1)
                ]
                weights = [math.exp(s - max(scores)) for s in scores]
                for v in range(len(row)):
                    total = sum(w * rows[j][v] for j, w in enumerate(weights))
                    new.append(total / sum(weights))
            grown.append(new)
        rows = grown
    readout = model.readout.tolist()
    return [sum(x * readout[u][s] for u, x in enumerate(rows[-1])) for s in range(model.n_symbols)]


def run_weights(w: ModelWeights, tokens: Tensor) -> Tensor:
    """A plain transformer in float64, by the definition of `ModelWeights`; last position."""
    x = w.W_E[tokens] + w.W_pos[: tokens.shape[1]]
    future = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
    for layer in range(w.n_layers):
        added = x + w.b_O[layer]
        for head in range(w.n_heads):
            query = x @ w.W_Q[layer, head] + w.b_Q[layer, head]
            key = x @ w.W_K[layer, head] + w.b_K[layer, head]
            scores = query @ key.transpose(1, 2) / w.scale[layer]
            pattern = scores.masked_fill(future, -torch.inf).softmax(-1)
            added = added + pattern @ x @ w.W_V[layer, head] @ w.W_O[layer, head]
        x = added
        mlp = w.mlps[layer]
        if mlp is not None:
            x = x + mlp.activation(x @ mlp.W_in + mlp.b_in) @ mlp.W_out + mlp.b_out
    return x[:, -1] @ w.W_U + w.b_U


def some_tokens(symbols: int, length: int, n: int = 6) -> Tensor:
    return torch.randint(symbols, (n, length), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("heads", SHAPES)
def test_it_is_the_definition(heads: tuple[int, ...]) -> None:
    model = DisentangledTransformer(2, 4, heads, init_std=0.7, seed=3).double()
    tokens = some_tokens(2, 4)
    expected = torch.tensor([literal(model, row) for row in tokens.tolist()], dtype=torch.double)
    assert_close(model(tokens).detach(), expected)


@pytest.mark.parametrize("heads", SHAPES)
def test_the_embedding_in_plain_weights_is_exact(heads: tuple[int, ...]) -> None:
    model = DisentangledTransformer(3, 5, heads, init_std=0.7, seed=1).double()
    tokens = some_tokens(3, 5)
    weights = model.to_weights()
    assert weights.d_model == model.widths[-1]
    assert_close(run_weights(weights, tokens), model(tokens).detach(), atol=1e-12, rtol=0)


def test_the_writing_subspaces_are_orthogonal() -> None:
    weights = DisentangledTransformer(2, 3, (2, 1), init_std=0.5).to_weights()
    written = [weights.W_E, weights.W_pos]
    written += [weights.W_OV(layer, head) for layer in range(2) for head in range(2)]
    for i, one in enumerate(written):
        for other in written[:i]:
            assert float((one @ other.T).abs().max()) == 0


def test_at_zero_only_the_readout_has_a_gradient() -> None:
    model = DisentangledTransformer(2, 3)
    loss = -model(some_tokens(2, 3)).log_softmax(-1)[:, 0].mean()
    loss.backward()
    assert float(model.readout.grad.abs().max()) > 0  # type: ignore[union-attr]
    for matrices in model.attention:
        assert float(matrices.grad.abs().max()) == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("heads", [(1, 1), (2, 1)])
def test_the_additive_model_embeds_exactly_with_its_mlp(heads: tuple[int, ...]) -> None:
    model = AdditiveTransformer(3, 5, heads, d_model=12, d_mlp=7, init_std=0.5, seed=2).double()
    tokens = some_tokens(3, 5)
    weights = model.to_weights()
    assert weights.has_mlp
    assert_close(run_weights(weights, tokens), model(tokens).detach(), atol=1e-12, rtol=0)


def test_the_additive_model_trains_what_it_says() -> None:
    model = AdditiveTransformer(2, 4)
    trained = {name.split(".")[0] for name, _ in model.named_parameters()}
    assert trained == {"attention", "W_in", "b_in", "W_out", "b_out", "readout"}
    assert isinstance(model, nn.Module)


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"no such disentangled transformer; got n_sym"):
        DisentangledTransformer(1, 5)
    with pytest.raises(InvalidArgumentError, match=r"every layer with a head"):
        DisentangledTransformer(3, 5, (1, 0))
    with pytest.raises(InvalidArgumentError, match=r"no such additive transformer"):
        AdditiveTransformer(3, 5, (1, 1), d_mlp=0)
