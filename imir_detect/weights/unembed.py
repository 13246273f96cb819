"""Logits a part of the vocabulary at a time: no table of contexts is ever vocabulary wide."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.linalg import DTYPE
from imir_detect.weights.forward import normed
from imir_detect.weights.model import ModelWeights

BLOCK = 4096  # output tokens


def by_block(
    weights: ModelWeights,
    rows: Float[Tensor, "row d_model"],
    times: Float[Tensor, "row 1"] | float = 1.0,
) -> Iterator[tuple[int, Float[Tensor, "row block"]]]:
    """The first output token of every block, and rows W_U + times b_U there. The product is one of
    float32, as models make it: it is a good part of what a wide vocabulary costs."""
    narrow = rows.to(torch.float32)
    for first in range(0, weights.vocab_out, BLOCK):
        block = slice(first, first + BLOCK)
        logits = narrow @ weights.W_U[:, block].to(torch.float32)
        yield first, logits.to(DTYPE).add_(times * weights.b_U[block])


def top_tokens(
    weights: ModelWeights, residual: Float[Tensor, "n pos d_model"]
) -> Int[Tensor, "n pos"]:
    """The output token that leads at every place, from the residual stream at the end. A soft cap
    of the logits, which is monotone, changes nothing of it."""
    rows = normed(weights, weights.n_layers, residual).flatten(0, 1)
    best = torch.full((len(rows),), -torch.inf, dtype=DTYPE)
    token = torch.zeros(len(rows), dtype=torch.long)
    for first, logits in by_block(weights, rows):
        largest, index = logits.max(-1)
        token = torch.where(largest > best, first + index, token)
        best = torch.maximum(best, largest)
    return token.view(residual.shape[:2])
