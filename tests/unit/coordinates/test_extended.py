"""Extended embeddings and what they carry, against models small enough to sum exactly."""

from typing import Any

import planted
import pytest
import torch

from imir_detect.coordinates.carried import carry, matched_keys
from imir_detect.coordinates.extended import Extended
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.routes import _sum_residuals
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights


def take(weights: ModelWeights, context: int, **settings: Any) -> Extended:
    return Extended.take(
        weights,
        lambda tokens: _sum_residuals(weights, tokens),
        torch.arange(weights.vocab_size),
        context,
        seed=0,
        **settings,
    )


def test_at_layer_0_an_extended_embedding_is_the_embedding() -> None:
    """Without norms, own = W_E less the mean over tokens, up to the sampling of contexts."""
    weights = read_weights(ModelSpec(24, 8, d_model=16, n_heads=2, init_range=0.5).boot(seed=0))
    extended = take(weights, 8, occurrences=400)
    expected = weights.W_E[extended.tokens] - weights.W_E.mean(0)
    for half in extended.own[0]:
        assert torch.allclose(half, expected, atol=0.05 * float(expected.abs().max()))
    # What the token before leaves at layer 0 is nothing.
    assert float(extended.before[0].abs().max()) < 0.15 * float(expected.abs().max())


def test_a_planted_previous_token_head_shows_in_what_the_token_before_leaves() -> None:
    weights = read_weights(planted.induction())
    extended = take(weights, 10, occurrences=200)
    slot = extended.before[1].mean(0)[:, planted.S.first]
    tokens = extended.tokens
    own = slot[torch.arange(len(tokens)), tokens]
    rest = slot.sum(1) - own
    assert float(own.min()) > 0.8
    assert float(rest.abs().max()) < 1.2  # a deviation: it sums to zero over tokens


def test_matched_keys_by_hand() -> None:
    index = torch.tensor([[3, 5, 3, 7, 5]])
    found = matched_keys(index)[0].nonzero().tolist()
    # Query 2 repeats the token of position 0, which is left out; what follows it is position 1.
    # Query 4 repeats position 1; position 2 follows it.
    assert found == [[2, 1], [4, 1], [4, 2]]


@pytest.mark.parametrize("norm", [None, "RMS", "LN"])
def test_carried_attention_follows_the_summed_paths(norm: Any) -> None:
    """A planted circuit's attention on repeated contexts comes out of its extended embeddings."""
    weights = read_weights(planted.induction(norm=norm))
    extended = take(weights, 12, occurrences=60)
    index = torch.stack([torch.randperm(len(extended.tokens))[:6] for _ in range(8)])
    index = torch.cat([index, index], 1)
    predicted = carry(weights, extended, index)
    exact = sum_paths(weights, extended.tokens[index])
    query = torch.arange(7, 12)
    for attention, true in zip(predicted.attention, exact.attention, strict=True):
        a = attention[:, 0, query, query - 5].mean()
        b = true[:, 0, query, query - 5].mean()
        assert abs(float(a) - float(b)) < 0.1
    assert float(predicted.attention[1][:, 0, query, query - 5].mean()) > 0.8


def test_nothing_is_carried_where_nothing_repeats() -> None:
    weights = read_weights(planted.induction())
    extended = take(weights, 12)
    index = torch.randperm(len(extended.tokens))[None, :12]
    plain = carry(weights, extended, index)
    expected = (extended.own[2] + 0).mean(0)[index]
    known = (torch.arange(12) >= 1).double()[:, None]
    previous = torch.cat([index[:, :1], index[:, :-1]], 1)
    follows = (torch.arange(12) >= 2).double()[:, None]
    expected = expected * known + extended.before[2].mean(0)[previous] * follows
    assert torch.allclose(plain.deviation[2], expected)


def test_the_same_seed_gives_the_same_embeddings() -> None:
    weights = read_weights(planted.induction())
    a, b = take(weights, 12), take(weights, 12)
    assert torch.equal(a.tokens, b.tokens)
    assert all(torch.equal(x, y) for x, y in zip(a.own, b.own, strict=True))
