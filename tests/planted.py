"""Models whose heads do what they are told, for tests: the residual stream is cut into slots.

Slots: `token` and `position` hold one-hot embeddings; `first` and `second` are scratch for heads;
`logit` is what the unembedding reads. A head reads one slot with its query and one with its key,
scores `sharpness` where they agree (after shifting the query's index), and moves one slot to
another.
"""

from __future__ import annotations

from typing import Any

import torch

from imir_detect.weights.native import ModelSpec

VOCAB, CONTEXT = 14, 14


class S:
    """Where each slot lies."""

    token = slice(0, VOCAB)
    position = slice(VOCAB, VOCAB + CONTEXT)
    first = slice(VOCAB + CONTEXT, 2 * VOCAB + CONTEXT)
    second = slice(2 * VOCAB + CONTEXT, 3 * VOCAB + CONTEXT)
    logit = slice(3 * VOCAB + CONTEXT, 4 * VOCAB + CONTEXT)
    width = 4 * VOCAB + CONTEXT


@torch.no_grad()
def empty(layers: int = 2, heads: int = 2, **spec: Any) -> Any:
    """A native bridge with one-hot embeddings and heads that do nothing."""
    made = ModelSpec(
        VOCAB,
        CONTEXT,
        n_layers=layers,
        n_heads=heads,
        d_model=S.width,
        **{"d_head": max(VOCAB, CONTEXT), **spec},
    )
    model = made.boot(seed=0)
    for name, parameter in model.original_model.named_parameters():
        if "ln" not in name:
            parameter.zero_()
    model.embed.weight[:, S.token] = torch.eye(VOCAB)
    if made.position == "standard":
        model.pos_embed.weight[:, S.position] = torch.eye(CONTEXT)
    model.unembed.weight[:, S.logit] = torch.eye(VOCAB)
    return model


@torch.no_grad()
def set_head(
    model: Any,
    layer: int,
    head: int,
    *,
    query: slice,
    key: slice,
    back: int = 0,
    moves: tuple[slice, slice] | None = None,
    sharpness: float = 60.0,
    gain: float = 1.0,
    only: slice = slice(None),
) -> None:
    """Score `sharpness` where query index - back = key index (for indices in `only`), and move
    one slot to another times `gain`."""
    attention, width = model.blocks[layer].attn, model.cfg.d_head
    size = query.stop - query.start
    for i in range(size)[only]:
        if 0 <= i - back < size:
            attention.q.weight[head * width + i - back, query.start + i] = sharpness
    for i in range(size):
        attention.k.weight[head * width + i, key.start + i] = 1.0
    if moves is not None:
        source, target = moves
        for i in range(source.stop - source.start):
            attention.v.weight[head * width + i, source.start + i] = 1.0
            attention.o.weight[target.start + i, head * width + i] = gain


def previous_token(model: Any, layer: int = 0, head: int = 0, **kwargs: Any) -> None:
    """A head that attends one back and writes that token to the first scratch slot."""
    settings = {"back": 1, "moves": (S.token, S.first), **kwargs}
    set_head(model, layer, head, query=S.position, key=S.position, **settings)


def matching(model: Any, layer: int = 1, head: int = 0, **kwargs: Any) -> None:
    """A head that looks for its token among the previous tokens, and copies what it finds."""
    settings = {"key": S.first, "moves": (S.token, S.logit), **kwargs}
    set_head(model, layer, head, query=S.token, **settings)


def induction(**spec: Any) -> Any:
    """L0H0 (previous token) -> L1H0 (match and copy)."""
    model = empty(**spec)
    previous_token(model)
    matching(model)
    return model


@torch.no_grad()
def association(pairs: dict[int, int], gain: float = 4.0, **spec: Any) -> Any:
    """The direct path writes each token's partner to the logits; no head does anything."""
    model = empty(**spec)
    for token, partner in pairs.items():
        model.unembed.weight[partner, S.token.start + token] = gain
    return model
