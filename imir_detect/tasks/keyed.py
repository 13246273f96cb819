"""Blocks of a key and a value: how sequences are put together and read back.

A keyed task asks with the key of one block (block 0 of a draw) for its value. Recall, n-grams and
conditional retrieval are keyed; they differ in what a key is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imir_detect._typing import Bool, Float, Int
from imir_detect.tasks.base import Batch
from imir_detect.tasks.family import ask_last, last_place


def keyed_batch(
    keys: Int[Tensor, "n slots width"],
    values: Int[Tensor, "n slots"],
    block: Int[Tensor, "n n_blocks"],
    positions: Int[Tensor, "n pos"] | None,
) -> Batch:
    """Blocks [key value] in the order `block`, then the key of block 0, whose value is asked."""
    rows = torch.cat([keys, values[..., None]], dim=-1)
    context = rows.gather(1, block[..., None].expand(-1, -1, rows.shape[-1]))
    tokens = torch.cat([context.flatten(1), keys[:, 0]], dim=1)
    answer = last_place(context[..., -1], values[:, 0], rows.shape[-1], rows.shape[-1] - 1)
    return ask_last(tokens, values[:, 0], answer, positions)


def ask_for(
    batch: Batch, key: Int[Tensor, "n width"], value: Int[Tensor, " n"], stride: int
) -> Batch:
    """The same context with another key at the end, whose value is asked."""
    width = key.shape[1]
    tokens = torch.cat([batch.tokens[:, :-width], key], dim=1)
    answer = last_place(tokens[:, stride - 1 : -width : stride], value, stride, stride - 1)
    return ask_last(tokens, value, answer, batch.positions)


def read_value(
    tokens: Int[Tensor, "n pos"], width: int
) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
    """The value of the last block that shows the query's key, and whether one does."""
    n, stride = len(tokens), width + 1
    blocks = tokens[:, :-width].reshape(n, -1, stride)
    hit = (blocks[..., :-1] == tokens[:, None, -width:]).all(dim=-1)
    place = (hit * torch.arange(1, hit.shape[1] + 1)).max(dim=1).values
    value = blocks[..., -1].gather(1, (place - 1).clamp(min=0)[:, None])[:, 0]
    return value, place > 0


def keyed_law(
    batch: Batch, width: int, candidates: Bool[Tensor, " vocab"]
) -> Float[Tensor, "n vocab"]:
    """The shown value for certain; where none is shown, uniform over candidates not yet seen."""
    value, found = read_value(batch.tokens, width)
    free = candidates.expand(len(batch), -1).clone()
    free.scatter_(1, batch.tokens, False)
    guess = free.double() / free.sum(dim=1, keepdim=True).clamp(min=1)
    shown = torch.nn.functional.one_hot(value, len(candidates)).double()
    return torch.where(found[:, None], shown, guess)
