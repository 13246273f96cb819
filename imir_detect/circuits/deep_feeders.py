"""What earlier heads bring to an induction head of a deep model: K-, Q- and V-composition.

A head's score for the wanted key, and what it moves from there to the logits, are linear in the
residual once norms and attention are held. For each there is a direction, at the key or at the
query, and an earlier head brings what it writes along it, at the attention predicted for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex, Int
from imir_detect.circuits.attribution import leading
from imir_detect.circuits.deep_seen import Deep
from imir_detect.coordinates.pathsum import EMBED, Edge, Port
from imir_detect.linalg import DTYPE
from imir_detect.progress import bar
from imir_detect.weights.forward import by_head, finish, project, qk_factor

Terms = dict[HeadIndex, dict[Edge, float]]  # nats of every edge into a head


@dataclass(frozen=True)
class Wish:
    """The `direction` (n, query, d_model) of what a head reads at `place` (query) that raises what
    is asked of it, in nats a unit."""

    direction: Float[Tensor, "n query d_model"]
    place: Int[Tensor, " query"]


def fed(deep: Deep, targets: tuple[HeadIndex, ...], hops: int = 1) -> tuple[Terms, Terms]:
    """For each head, the nats that every earlier head brings to its match (the score of the key
    `hops` places behind the earlier copy, through keys and queries), and to its copy (the logit of
    the token there, through values; the embedding and MLPs bring the rest)."""
    wishes: dict[tuple[HeadIndex, Port], Wish] = {}
    for head in targets:
        wishes[head, "K"] = wished_key(deep, head, hops)
        wishes[head, "Q"] = wished_query(deep, head, hops)
        if deep.weights.same_vocabulary:
            wishes[head, "V"] = wished_value(deep, head, hops)
    match: Terms = {head: {} for head in targets}
    moved: Terms = {head: {} for head in targets}
    for (head, port), brought in _brought(deep, wishes).items():
        kept = moved if port == "V" else match
        kept[head] |= {Edge(source, head, port): nats for source, nats in brought.items()}
    for head, terms in moved.items():
        if (head, "V") in wishes:
            read = deep.repeated.deviation[head[0]][:, wishes[head, "V"].place]
            whole = float((wishes[head, "V"].direction * read).sum(-1).mean())
            terms[Edge(EMBED, head, "V")] = whole - sum(terms.values())
    return match, moved


def searched(match: Terms) -> tuple[float, float]:
    """Share of what heads bring to the match, over all heads fed, that those named bring; and the
    most that one not named brings to any of them, in nats."""
    named = total = rest = 0.0
    for terms in match.values():
        kept = leading(terms)
        total += sum(max(0.0, v) for v in terms.values())
        named += sum(max(0.0, terms[edge]) for edge in kept)
        rest = max([rest, *(v for edge, v in terms.items() if edge not in kept)])
    return (named / total if total > 0 else 0.0), rest


def _brought(
    deep: Deep, wishes: dict[tuple[HeadIndex, Port], Wish]
) -> dict[tuple[HeadIndex, Port], dict[HeadIndex, float]]:
    """Nats that every earlier head brings along each wish, over what it brings to the mean place:
    sum over what it predicts to attend to."""
    w, extended, carried = deep.weights, deep.extended, deep.repeated
    terms: dict[tuple[HeadIndex, Port], dict[HeadIndex, float]] = {key: {} for key in wishes}
    for earlier in bar(range(max((head[0] for head, _ in wishes), default=0)), what="feeders"):
        offered = by_head(carried.deviation[earlier], w.W_V[earlier])
        z = carried.attention[earlier] @ offered
        z = z - z.mean(2, keepdim=True)
        for (target, port), wish in wishes.items():
            if target[0] > earlier:
                scale = extended.rms[target[0]][wish.place]
                along = torch.einsum("nqd,hkd->nhqk", wish.direction / scale, w.W_O[earlier])
                nats = (z[:, :, wish.place] * along).sum(-1).mean((0, 2))
                heads = ((earlier, head) for head in range(w.n_heads))
                terms[target, port] |= dict(zip(heads, nats.tolist(), strict=True))
    return terms


def wished_key(deep: Deep, head: HeadIndex, hops: int = 1) -> Wish:
    """At the key `hops` places behind the earlier copy, what raises its score."""
    w, (layer, index) = deep.weights, head
    kind, wanted = w.attention[layer], _wanted(deep, hops)
    q, k = _projected(deep, layer)
    query = finish(w, layer, "Q", q, qk_factor(w, layer, q))[:, index, deep.queries]
    if kind.rotary is not None:  # instead of turning keys forward
        query = kind.rotary.rotate(query, -wanted)
    factor = qk_factor(w, layer, k)
    if kind.qk_norm is not None and factor is not None:
        query = query * kind.qk_norm.key_gain[index] * factor[:, index, wanted]
    return Wish(query @ w.W_K[layer, index].T, wanted)


def wished_query(deep: Deep, head: HeadIndex, hops: int = 1) -> Wish:
    """At the query, what raises the score of the wanted key over the mean key that it sees."""
    w, (layer, index) = deep.weights, head
    kind, queries = w.attention[layer], deep.queries
    q, k = _projected(deep, layer)
    keys = finish(w, layer, "K", k, qk_factor(w, layer, k))[:, index]
    seen = torch.arange(1, keys.shape[1] + 1, dtype=DTYPE)[:, None]
    contrast = keys[:, _wanted(deep, hops)] - (keys.cumsum(1) / seen)[:, queries]
    if kind.rotary is not None:
        contrast = kind.rotary.rotate(contrast, -queries)
    factor = qk_factor(w, layer, q)
    if kind.qk_norm is not None and factor is not None:
        contrast = contrast * kind.qk_norm.query_gain[index] * factor[:, index, queries]
    return Wish(contrast @ w.W_Q[layer, index].T / w.scale[layer], queries)


def wished_value(deep: Deep, head: HeadIndex, hops: int = 1) -> Wish:
    """At the key `hops` places behind the earlier copy, what raises the logit of its token over the
    other sampled ones, at the attention predicted for it and the output's typical norm."""
    w, extended, (layer, index) = deep.weights, deep.extended, head
    wanted = _wanted(deep, hops)
    columns = w.W_U[:, extended.tokens].T
    read = (columns - columns.mean(0)) @ w.W_O[layer, index].T / float(extended.rms[-1][1:].mean())
    direction = read[deep.repeated.index[:, wanted]] @ w.W_V[layer, index].T
    looks = deep.repeated.attention[layer][:, index, deep.queries, wanted]
    return Wish(direction * looks[..., None], wanted)


def _wanted(deep: Deep, hops: int) -> Int[Tensor, " query"]:
    return deep.queries - deep.period + hops


def _projected(deep: Deep, layer: int) -> tuple[Tensor, Tensor]:
    """Queries and keys of a layer, from what is predicted to be read."""
    length = deep.repeated.index.shape[1]
    rows = deep.extended.place[layer][:length] + deep.repeated.deviation[layer]
    return project(deep.weights, layer, "Q", rows), project(deep.weights, layer, "K", rows)
