"""Small models for the recorded answers, straight as `ModelWeights`: random ones, planted ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from imir_detect.weights.attention import Attention, QKNorm, Rotary
from imir_detect.weights.model import MLPWeights, ModelWeights

F64 = torch.float64


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def random_weights(
    *,
    vocab: int = 10,
    context: int = 8,
    layers: int = 3,
    heads: int = 2,
    width: int = 12,
    d_head: int = 4,
    mlp: int = 0,
    table: bool = True,
    scale: float = 0.6,
    seed: int = 0,
    **fields: Any,
) -> ModelWeights:
    """Normal entries everywhere, biases included. `mlp`: width of an MLP in every layer but 1."""

    def draw(number: int, *shape: int, by: float = scale) -> Tensor:
        return by * normal(*shape, seed=100 * seed + number)

    mlps = tuple(
        MLPWeights(
            draw(20 + 4 * i, width, mlp),
            draw(21 + 4 * i, mlp),
            draw(22 + 4 * i, mlp, width),
            draw(23 + 4 * i, width, by=0.2),
            torch.nn.functional.gelu,
        )
        if mlp and i != 1
        else None
        for i in range(layers)
    )
    return ModelWeights(
        W_E=draw(1, vocab, width, by=1.0),
        W_pos=draw(2, context if table else 0, width, by=0.7),
        W_Q=draw(3, layers, heads, width, d_head),
        W_K=draw(4, layers, heads, width, d_head),
        W_V=draw(5, layers, heads, width, d_head),
        W_O=draw(6, layers, heads, d_head, width),
        b_Q=draw(7, layers, heads, d_head, by=0.2),
        b_K=draw(8, layers, heads, d_head, by=0.2),
        b_O=draw(9, layers, width, by=0.2),
        W_U=draw(10, width, vocab, by=1.0),
        b_U=draw(11, vocab, by=0.2),
        scale=torch.arange(layers, dtype=F64) + 1.5,
        mlps=mlps,
        context=context,
        **fields,
    )


def every_kind() -> dict[str, ModelWeights]:
    """One random model of every kind of attention, norm and MLP."""
    gains = [1 + 0.3 * normal(2, 4, seed=50 + i) for i in range(2)]
    norm = QKNorm(gains[0], gains[1], together=False, eps=1e-6)
    turns = Rotary(torch.tensor([0.9, 0.2], dtype=F64), adjacent=False)
    sloped = Attention(slopes=torch.tensor([0.5, 0.125], dtype=F64))
    sunk = Attention(sinks=torch.tensor([0.3, -0.4], dtype=F64), window=5, cap=3.0)
    post = 1 + 0.2 * normal(3, 12, seed=60)
    offered = 0.3 * normal(3, 2, 4, seed=61)
    placed = Attention(
        query_places=0.5 * normal(2, 8, 4, seed=62), key_places=0.5 * normal(2, 8, 4, seed=63)
    )
    return {
        "plain": random_weights(),
        "norms and MLPs": random_weights(mlp=6, rms=True, seed=1),
        "parallel, normed after": random_weights(mlp=6, seed=2, parallel=True, post_gain=post),
        "rotary": random_weights(
            table=False, rms=True, seed=3, attention=(Attention(rotary=turns, qk_norm=norm),) * 3
        ),
        "slopes": random_weights(table=False, rms=True, seed=4, attention=(sloped,) * 3),
        "sinks": random_weights(seed=5, attention=(sunk,) * 3, b_V=offered),
        "shortformer": random_weights(table=False, seed=6, attention=(placed,) * 3),
    }


# -- planted: the residual stream is cut into slots, as in tests/planted.py ------------------------

VOCAB = 9  # tokens, and places


class Slots:
    """Where each slot lies."""

    def __init__(self, size: int) -> None:
        self.size, self.width = size, 5 * size
        self.token, self.position, self.first, self.second, self.logit = (
            slice(k * size, (k + 1) * size) for k in range(5)
        )


S = Slots(VOCAB)


class Job(NamedTuple):
    """Head (layer, head) scores `sharp` where query index - back = key index, and moves a slot."""

    layer: int
    head: int
    query: slice
    key: slice
    moves: tuple[slice, slice] | None = None
    back: int = 0
    sharp: float = 6.0
    gain: float = 1.0
    only: slice = slice(None)


PREVIOUS = Job(0, 0, S.position, S.position, (S.token, S.first), back=1)
MATCH = Job(1, 0, S.token, S.first, (S.token, S.logit))


def planted(
    *jobs: Job,
    layers: int = 2,
    noise: float = 0.03,
    pairs: dict[int, int] | None = None,
    gain: float = 2.0,
    seed: int = 0,
    size: int = VOCAB,
    **fields: Any,
) -> ModelWeights:
    """Heads that do what they are told, softly and with noise, so that no number is a round one.
    `pairs`: tokens whose partner the direct path names."""
    slots, heads = Slots(size), 2
    width = slots.width

    def draw(number: int, *shape: int) -> Tensor:
        return noise * normal(*shape, seed=1000 + 100 * seed + number)

    eye = torch.eye(width, dtype=F64)
    W_Q, W_K, W_V = (draw(i, layers, heads, width, size) for i in (3, 4, 5))
    W_O = draw(6, layers, heads, size, width)
    for job in jobs:
        at = job.layer, job.head
        for i in range(size)[job.only]:
            if 0 <= i - job.back < size:
                W_Q[at][job.query.start + i, i - job.back] += job.sharp
        for i in range(job.key.stop - job.key.start):
            W_K[at][job.key.start + i, i] += 1.0
        if job.moves is not None:
            source, target = job.moves
            for i in range(size):
                W_V[at][source.start + i, i] += 1.0
                W_O[at][i, target.start + i] += job.gain
    W_U = draw(10, width, size) + eye[:, slots.logit]
    for token, partner in (pairs or {}).items():
        W_U[token, partner] += gain
    return ModelWeights(
        W_E=draw(1, size, width) + eye[slots.token],
        W_pos=draw(2, size, width) + eye[slots.position],
        W_Q=W_Q,
        W_K=W_K,
        W_V=W_V,
        W_O=W_O,
        b_Q=draw(7, layers, heads, size),
        b_K=draw(8, layers, heads, size),
        b_O=draw(9, layers, width),
        W_U=W_U,
        b_U=draw(11, size),
        scale=torch.ones(layers, dtype=F64),
        **fields,
    )
