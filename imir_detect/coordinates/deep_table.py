"""Coordinates on extended embeddings: the same columns as `coordinate_table`, for deep models.

Rows, in order: for every head the shifts 1 .. 3 back on the mean rows of places, then the matches
of the token's own extended embedding with itself and with what the token before has left; then the
read-outs, copy and associate, of every head. Compositions through named heads have no rows here:
what earlier heads bring is summed in the extended embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex, Int
from imir_detect.coordinates.carried import Carried
from imir_detect.coordinates.effects import ZERO, read_selection, read_shift
from imir_detect.coordinates.extended import Extended, read_outs
from imir_detect.coordinates.table import (
    SHIFTS,
    Coordinate,
    draw_others,
    match_share,
    token_keys,
    token_queries,
    top_share,
    within,
)
from imir_detect.frame.names import TOKEN_IDENTITY, shift
from imir_detect.progress import bar
from imir_detect.weights.forward import SIDES, Side, finish, project, qk_factor
from imir_detect.weights.model import ModelWeights


def deep_table(
    weights: ModelWeights,
    extended: Extended,
    plain: Carried,
    *,
    relation: Int[Tensor, " vocab"],
    seed: int,
) -> tuple[Coordinate, ...]:
    """All coordinates. `plain`: attention predicted on contexts in which nothing repeats."""
    generator = torch.Generator().manual_seed(seed)
    size = len(extended.tokens)
    asked = torch.arange(size)
    others = draw_others(asked, size, max(1, extended.context - 1), generator=generator)
    rows: list[Coordinate] = []
    for layer in bar(range(weights.n_layers), what="coordinates"):
        scores = _place_scores(weights, extended, layer)
        factors = [_factors(weights, extended, layer, side) for side in SIDES]
        for index in range(weights.n_heads):
            rows += _shifts(scores[index], plain, (layer, index))
            rows += _matches(weights, extended, (layer, index), factors, asked, others)
    partner = within(relation, extended.tokens)
    for head, (A, B) in zip(weights.heads, read_outs(weights, extended), strict=True):
        rows += _read_outs(weights, A, B, head, partner, asked)
    return tuple(rows)


def _place_scores(
    w: ModelWeights, extended: Extended, layer: int
) -> Float[Tensor, "head place place"]:
    """Scores between the mean rows of places; position 0, where heads rest, is left out."""
    x = extended.place[layer][None, 1:]
    places = torch.arange(1, extended.context)
    finished = []
    for side in SIDES:
        rows = project(w, layer, side, x)
        factor = qk_factor(w, layer, rows)
        finished.append(finish(w, layer, side, rows, factor, places=places)[0])
    S = finished[0] @ finished[1].transpose(-1, -2)
    slopes = w.attention[layer].slopes
    if slopes is not None:
        S = S - slopes[:, None, None] * (places[:, None] - places)
    return S


def _shifts(
    S: Float[Tensor, "place place"], plain: Carried, head: HeadIndex
) -> Iterator[Coordinate]:
    layer, index = head
    pattern = plain.attention[layer][:, index]
    for offset in SHIFTS:
        reading = read_shift(S, offset)
        back = pattern.diagonal(-offset, 1, 2) if offset <= len(S) else S.new_zeros(1)
        yield Coordinate(
            "shift",
            layer,
            index,
            "place",
            str(shift(offset)),
            reading.effect,
            reading.cosine,
            reading.z,
            float(back.mean()),
        )


def _factors(w: ModelWeights, extended: Extended, layer: int, side: Side) -> Tensor | None:
    """The typical factors of a query-key norm (head, 1, 1, 1, 1), from the mean rows of places."""
    norm = w.attention[layer].qk_norm
    if norm is None:
        return None
    rows = project(w, layer, side, extended.place[layer][None, 1:])
    return norm.factor(rows).mean((0, 2, 3)).view(-1, 1, 1, 1, 1)


def _matches(
    w: ModelWeights,
    extended: Extended,
    head: HeadIndex,
    factors: list[Tensor | None],
    asked: Tensor,
    others: Tensor,
) -> Iterator[Coordinate]:
    """Queries from one half of the contexts, keys from the other."""
    layer, index = head
    f, g = (None if factor is None else factor[index] for factor in factors)
    A = token_queries(w, layer, index, extended.own[layer][0], f, extended.context)
    for name, table in (("own", extended.own), ("before", extended.before)):
        B = token_keys(w, layer, index, table[layer][1], g)
        reading = read_selection(A, B)
        yield Coordinate(
            "match",
            layer,
            index,
            f"q:own k:{name}",
            str(TOKEN_IDENTITY),
            reading.effect,
            reading.cosine,
            reading.z,
            match_share(A, B, asked, others),
        )


def _read_outs(
    w: ModelWeights,
    A: Float[Tensor, "token rank"],
    B: Float[Tensor, "token rank"],
    head: HeadIndex,
    partner: Tensor,
    asked: Tensor,
) -> Iterator[Coordinate]:
    layer, index = head
    for unit, name, to in (("copy", "identity", None), ("associate", "association", partner)):
        reading, top = ZERO, 0.0
        if w.same_vocabulary:
            reading = read_selection(A, B, to)
            top = top_share(A, B, to, asked)[0]
        yield Coordinate(
            unit,
            layer,
            index,
            f"L{layer}H{index}",
            name,
            reading.effect,
            reading.cosine,
            reading.z,
            top,
        )
