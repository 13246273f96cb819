"""Attention on contexts, predicted from weights and extended embeddings alone, layer by layer.

A place reads what its position is, what its token is, and what the token before it has left there;
and, where a token repeats, what earlier heads carry to it from the match, by their output-value
maps. What later MLPs make of the latter is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.coordinates.extended import Extended
from imir_detect.weights.forward import attend, by_head, finish, post_factor, project, qk_factor
from imir_detect.weights.model import ModelWeights


@dataclass(frozen=True)
class Carried:
    """What was predicted on some contexts.

    - `attention[layer]` (n, head, pos, pos).
    - `deviation[layer]` (n, pos, d_model): what heads read, less the mean of the place, both halves
      of the extended embeddings together, in units of the typical norm; one more for the output.
    """

    index: Int[Tensor, "n pos"]
    attention: tuple[Float[Tensor, "n head pos pos"], ...]
    deviation: tuple[Float[Tensor, "n pos d_model"], ...]


def carry(weights: ModelWeights, extended: Extended, index: Int[Tensor, "n pos"]) -> Carried:
    """Predicted attention on contexts of sampled tokens, given as indices into them."""
    length = index.shape[1]
    previous = torch.cat([index[:, :1], index[:, :-1]], 1)
    known = (torch.arange(length) >= 1).double()[:, None]
    follows = (torch.arange(length) >= 2).double()[:, None]
    matched = matched_keys(index)
    extra = torch.zeros(*index.shape, weights.d_model, dtype=torch.float64)
    attention, deviation = [], []

    def rows(layer: int, half: int) -> Tensor:
        own, before = extended.own[layer][half], extended.before[layer][half]
        brought = extra / extended.rms[layer][:length]
        return own[index] * known + before[previous] * follows + brought

    for layer in range(weights.n_layers):
        halves = [rows(layer, half) for half in (0, 1)]
        deviation.append((halves[0] + halves[1]) / 2)
        read = extended.place[layer][:length] + torch.cat(halves)
        q, k = project(weights, layer, "Q", read), project(weights, layer, "K", read)
        queries = finish(weights, layer, "Q", q, qk_factor(weights, layer, q)).chunk(2)
        keys = finish(weights, layer, "K", k, qk_factor(weights, layer, k)).chunk(2)
        # The mean of the two scores in which query and key come from different halves.
        query, key = torch.cat(queries, -1) / 2, torch.cat(keys[::-1], -1)
        pattern = attend(weights, layer, query, key)
        attention.append(pattern)
        if bool(matched.any()):
            z = (pattern * matched[:, None]) @ by_head(deviation[-1], weights.W_V[layer])
            written = torch.einsum("nhpk,hkd->npd", z, weights.W_O[layer])
            factor = post_factor(weights, layer, written)
            extra = extra + (written if factor is None else written * factor)
    last = weights.n_layers
    deviation.append((rows(last, 0) + rows(last, 1)) / 2)
    return Carried(index, tuple(attention), tuple(deviation))


def matched_keys(index: Int[Tensor, "n pos"]) -> Tensor:
    """(n, query, key): keys before the query that hold the query's token, or follow one that does.
    Position 0 is left out: what follows nothing was never carried there."""
    length = index.shape[1]
    same = index[:, :, None] == index[:, None, :]
    behind = torch.zeros_like(same)
    behind[:, :, 1:] = same[:, :, :-1]
    earlier = torch.ones(length, length, dtype=torch.bool).tril(-1)
    earlier[:, 0] = False
    return (same | behind) & earlier
