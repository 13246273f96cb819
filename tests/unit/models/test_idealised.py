"""The idealised model against a literal one, its conversion to plain weights, its guards."""

from __future__ import annotations

import math

import pytest
import torch

from imir_detect.errors import InvalidArgumentError
from imir_detect.models.idealised import idealised, swap_values, to_weights


def literal_logits(w, tokens: list[int], positions: list[int]) -> torch.Tensor:
    """One sequence through plain weights, one query and one head at a time."""
    x = [w.W_E[t] + w.W_pos[p] for t, p in zip(tokens, positions, strict=True)]
    for layer in range(w.n_layers):
        new = []
        for i, row in enumerate(x):
            out = row.clone()
            for head in range(w.n_heads):
                query = row @ w.W_Q[layer, head]
                scores = [float(query @ (x[j] @ w.W_K[layer, head])) for j in range(i + 1)]
                mass = [math.exp(s - max(scores)) for s in scores]
                for j in range(i + 1):
                    value = x[j] @ w.W_V[layer, head] @ w.W_O[layer, head]
                    out += mass[j] / sum(mass) * value
            new.append(out)
        x = new
    return torch.stack(x) @ w.W_U + w.b_U


@pytest.mark.parametrize("values", ["separated", "random"])
@pytest.mark.parametrize("heads", [1, 2])
def test_converted_weights_compute_the_same_logits(values, heads) -> None:
    model = idealised(4, 6, 2, heads, values=values, scale=0.7, seed=1)
    tokens, positions = [3, 1, 0, 3], [4, 5, 0, 2]
    got = model.logits(torch.tensor([tokens]), torch.tensor([positions]), everywhere=True)[0]
    assert torch.allclose(got, literal_logits(to_weights(model), tokens, positions), atol=1e-10)


def test_the_last_position_alone_is_the_last_of_all() -> None:
    model = idealised(4, 5, 3, scale=0.5)
    tokens = torch.randint(4, (3, 5), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(model.logits(tokens), model.logits(tokens, everywhere=True)[:, -1])


def test_separated_maps_are_orthogonal_swaps_that_keep_paths_apart() -> None:
    maps = swap_values(idealised(2, 1, 2, 2))
    d = maps.shape[-1]
    first = torch.eye(3, d, dtype=maps.dtype)
    reached = [first]
    for layer in range(2):
        assert all(torch.equal(v @ v.T, torch.eye(d, dtype=v.dtype)) for v in maps[layer])
        reached += [r @ v for r in list(reached) for v in maps[layer]]
    rows = torch.cat(reached)
    assert len(rows) == 9 * 3
    assert torch.equal(rows @ rows.T, torch.eye(27, dtype=rows.dtype))


def test_random_maps_and_embeddings_are_orthogonal() -> None:
    model = idealised(3, 2, 2, values="random")
    assert model.values.shape == (2, 1, 20, 20)
    assert torch.allclose(model.embedding @ model.embedding.T, torch.eye(5).double())
    product = model.values[0, 0] @ model.values[0, 0].T
    assert torch.allclose(product, torch.eye(20).double())


def test_attention_is_causal_and_uniform_at_zero() -> None:
    model = idealised(3, 4, 1)
    pattern = model.pattern(torch.tensor([[0, 1, 2]]), layer=0)[0, 0]
    wanted = torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]]).double()
    assert torch.allclose(pattern, wanted)


def test_embeddings_without_room_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="need room"):
        idealised(4, 3, 1, width=6)


def test_sequences_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="sequences do not fit the model"):
        idealised(4, 3, 1).logits(torch.tensor([[0, 1, 2, 3]]))
