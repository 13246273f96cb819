"""Recorded answers of `imir_detect.coordinates`, on random models of every kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from small_models import F64, every_kind, normal, random_weights
from torch import Tensor

from imir_detect.coordinates.carried import carry, matched_keys
from imir_detect.coordinates.deep_table import deep_table
from imir_detect.coordinates.effects import read_selection, read_shift
from imir_detect.coordinates.extended import Extended, read_out
from imir_detect.coordinates.pathsum import (
    EMBED,
    OUTPUT,
    PORTS,
    Edge,
    name_of,
    sum_edges,
    sum_paths,
)
from imir_detect.coordinates.profiles import position_profiles
from imir_detect.coordinates.table import (
    coordinate_table,
    draw_others,
    match_share,
    token_keys,
    token_queries,
    top_share,
    within,
)
from imir_detect.errors import UnsupportedModelError
from imir_detect.weights.model import ModelWeights, Opaque

RELATION = torch.tensor([1, 0, 3, 2, 7, -1, -1, 9, -1, 4])
SOME = torch.tensor([0, 1, 2, 3, 4, 7, 9])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tokens_for(n: int = 6, length: int = 8) -> Tensor:
    return torch.randint(10, (n, length), generator=generator(3))


KINDS = tuple(every_kind())


@cache
def kind(name: str) -> ModelWeights:
    return every_kind()[name]


def run_of(weights: ModelWeights) -> Callable[[Tensor], list[Tensor]]:
    def run(tokens: Tensor) -> list[Tensor]:
        trace = sum_paths(weights, tokens)
        rows = [trace.embedded]
        for written, rest in zip(trace.written, trace.rest, strict=True):
            rows.append(rows[-1] + written.sum(1) + rest)
        return rows

    return run


def extended_of(weights: ModelWeights, **options: Any) -> Extended:
    settings = {"tokens": 9, "occurrences": 4, "seed": 5, **options}
    return Extended.take(weights, run_of(weights), torch.arange(10), 7, **settings)


def edges_of(weights: ModelWeights, share: float, seed: int = 0) -> set[Edge]:
    """A random part of all edges."""
    heads = list(weights.heads)
    every = [Edge(a, b, port) for a in heads for b in heads if a[0] < b[0] for port in PORTS]
    every += [Edge(EMBED, head, port) for head in heads for port in PORTS]
    every += [Edge(head, OUTPUT, "out") for head in heads] + [Edge(EMBED, OUTPUT, "out")]
    kept = torch.rand(len(every), generator=generator(seed)) < share
    return {edge for edge, keep in zip(every, kept.tolist(), strict=True) if keep}


# -- sums over paths -------------------------------------------------------------------------------


def paths_summed(name: str) -> Callable[[], Any]:
    def answer() -> Any:
        weights = kind(name)
        trace = sum_paths(weights, tokens_for())
        return {
            "trace": trace,
            "chosen": trace.select(torch.tensor([4, 1])),
            "factors": [trace.qk_factor(1, side, head) for side in ("Q", "K") for head in (0, 1)],
        }

    return answer


def edges_summed(name: str) -> Callable[[], Any]:
    def answer() -> Any:
        weights, tokens = kind(name), tokens_for()
        full = sum_paths(weights, tokens)
        found = {}
        for share, seed in ((0.3, 1), (0.6, 2), (0.9, 3), (1.1, 4)):
            part = sum_edges(weights, tokens, edges_of(weights, share, seed), full)
            found[str(share)] = [part.final, part.attention, part.written, part.rest]
        head = {Edge(EMBED, (1, 1), "V"), Edge((1, 1), OUTPUT, "out")}
        found["one head"] = sum_edges(weights, tokens, head, full)
        found["nothing"] = sum_edges(weights, tokens, set(), full).final
        direct = {Edge(EMBED, OUTPUT, "out")}
        found["direct"] = sum_edges(weights, tokens, direct, full).final
        return found

    return answer


def names_of_nodes() -> Any:
    return [name_of((2, 1)), name_of(EMBED), str(Edge((0, 1), OUTPUT, "out"))]


def unread() -> Any:
    weights = replace(kind("plain"), mlps=(None, Opaque("a mixture"), None))
    try:
        sum_paths(weights, tokens_for())
    except UnsupportedModelError as error:
        return str(error)
    return "read"


def profiles() -> Any:
    return position_profiles(sum_paths(kind("slopes"), tokens_for()))


# -- readings --------------------------------------------------------------------------------------


def readings() -> Any:
    A, B = normal(6, 3, seed=1), normal(6, 3, seed=2)
    partner = torch.tensor([1, 0, -1, 2, 2, -1])
    eye = torch.eye(4, dtype=F64)
    S = normal(5, 5, seed=3)
    two = torch.tensor([[0.0, 1.0], [1.0, 0.5]], dtype=F64)
    return {
        "identity": read_selection(A, B),
        "partner": read_selection(A, B, partner),
        "one pair": read_selection(A, B, torch.tensor([-1, -1, 4, -1, -1, -1])),
        "nobody": read_selection(A, B, torch.full((6,), -1)),
        "eye": read_selection(3 * eye, eye),
        "two": read_selection(A[:2], B[:2]),
        "two, one pair": read_selection(A[:2], B[:2], torch.tensor([1, -1])),
        "one": read_selection(A[:1], B[:1]),
        "constant rows": read_selection(torch.ones(4, 2, dtype=F64), B[:4, :2]),
        "constant columns": read_selection(A[:4], torch.ones(4, 3, dtype=F64)),
        "faint": read_selection(1e-40 * A, 1e-40 * B),
        "seen": read_selection(1e-30 * A, 1e-30 * B),
        "all to one": read_selection(A, B, torch.full((6,), 3)),
        "no null": read_selection(eye, eye, torch.tensor([0, 1, 2, 3])),
        "even": read_selection(
            torch.tensor([[1.0], [1.0], [-1.0], [-1.0]], dtype=F64),
            torch.tensor([[1.0], [-1.0], [1.0], [-1.0]], dtype=F64),
            torch.tensor([0, 1, -1, -1]),
        ),
        "shifts": [read_shift(S, offset) for offset in (1, 2, 3, 4, 5, 6)],
        "two places": [read_shift(two, offset) for offset in (1, 2)],
        "one place": read_shift(S[:1, :1], 1),
        "offset 0": [read_shift(S, 0), read_shift(S[:1, :1], 0)],
        "flat": read_shift(torch.ones(4, 4, dtype=F64), 1),
        "planted": read_shift(torch.eye(5, dtype=F64).roll(1, 0), 1),
    }


def shares() -> Any:
    A, B = normal(8, 4, seed=5), normal(8, 4, seed=6)
    every, some = torch.arange(8), torch.tensor([6, 0, 3])
    partner = torch.tensor([2, -1, 0, 4, 3, -1, 7, -1])
    eye = torch.eye(8, dtype=F64)
    tied = torch.ones(8, 1, dtype=F64)
    others = draw_others(every, 8, 5, generator=generator(1))
    close = {}
    for scale in (1e-4, 1.0, 1e4):  # a lead counts from 1e-9 of the row's largest entry
        for lead in (-3e-9, -0.6e-9, 0.6e-9, 1.5e-9, 3e-9):
            rows = scale * torch.tensor([[1.0, 1.0 - lead, -1.0, -1.0 - lead, 0.0]], dtype=F64)
            rows = torch.cat([rows, -rows.clone()])
            close[f"{scale}, {lead}"] = top_share(
                torch.eye(2, dtype=F64) - 0.5, rows.T, torch.tensor([0, 2, 1, 3])[:2], every[:2]
            )
    return {
        "close": close,
        "top": top_share(A, B, None, every),
        "with partners": top_share(A, B, partner, every),
        "of some": top_share(A, B, partner, some),
        "of none": top_share(A, B, torch.full((8,), -1), some),
        "all": top_share(eye, eye, None, every),
        "lowest": top_share(eye, -eye, None, some),
        "tied": top_share(tied, tied, None, every),
        "others": others,
        "of one": draw_others(torch.tensor([0]), 1, 3, generator=generator(2)),
        "of two": draw_others(torch.tensor([0, 1]), 2, 3, generator=generator(2)),
        "match": match_share(A, B, every, others),
        "match of some": match_share(A, B, some, others[:3]),
        "within": within(RELATION, SOME),
        "within all": within(RELATION, torch.arange(10)),
        "within, none": within(None, SOME),
    }


# -- tables ----------------------------------------------------------------------------------------


def table(name: str) -> Callable[[], Any]:
    def answer() -> Any:
        weights = kind(name)
        trace = sum_paths(weights, tokens_for())
        every = torch.arange(10)
        return [
            coordinate_table(weights, trace, relation=RELATION, tokens=every, seed=1),
            coordinate_table(weights, trace, relation=None, tokens=SOME, seed=2),
        ]

    return answer


def table_of_other_outputs() -> Any:
    weights = replace(kind("plain"), W_U=normal(12, 6, seed=9), b_U=normal(6, seed=8))
    trace = sum_paths(weights, tokens_for(4, 3))
    return coordinate_table(weights, trace, relation=RELATION, tokens=SOME, seed=1)


def table_of_many_tokens() -> Any:
    """Of 2,048 tokens all are read, of one more a sample."""
    found = {}
    for size in (2048, 2049):
        weights = random_weights(vocab=size, layers=1, heads=1, context=4)
        trace = sum_paths(weights, torch.arange(8).view(2, 4))
        rows = coordinate_table(weights, trace, relation=None, tokens=torch.arange(size), seed=3)
        found[str(size)] = rows
    return found


def queries_and_keys(name: str) -> Callable[[], Any]:
    def answer() -> Any:
        weights, rows = kind(name), normal(5, 12, seed=7)
        factor = torch.full((1, 1, 1, 1), 0.7, dtype=F64)
        return [
            token_queries(weights, 1, 1, rows, None, 6),
            token_queries(weights, 1, 1, rows, factor, 6),
            token_queries(weights, 2, 0, rows, factor, 1),
            token_queries(weights, 2, 0, rows, factor, 2),
            token_keys(weights, 1, 1, rows, None),
            token_keys(weights, 2, 0, rows, factor),
        ]

    return answer


# -- extended embeddings ---------------------------------------------------------------------------


def extended(name: str) -> Callable[[], Any]:
    def answer() -> Any:
        weights = kind(name)
        found = extended_of(weights)
        return {
            "extended": found,
            "context": found.context,
            "read out": [read_out(weights, found, head) for head in ((0, 1), (2, 0))],
        }

    return answer


def extended_settings() -> Any:
    weights = random_weights(layers=1, vocab=30, context=20, width=6, d_head=3)
    run = run_of(weights)
    vocabulary = torch.arange(30)

    def taken(words: Tensor, context: int, **options: Any) -> Any:
        found = Extended.take(weights, run, words, context, seed=2, **options)
        return [found.tokens, found.contexts, found.context, found.own, found.named, found.lead]

    cut = replace(weights, W_U=weights.W_U[:, :5], b_U=weights.b_U[:5])
    other = Extended.take(cut, run_of(cut), vocabulary, 6, tokens=12, occurrences=2, seed=2)
    return {
        "defaults": taken(vocabulary, 20),
        "few words": taken(vocabulary[:5], 20),
        "few contexts": taken(vocabulary[:6], 6, occurrences=1),
        "sampled": taken(vocabulary, 7, tokens=13, occurrences=3),
        "other outputs": [other.named, other.lead, other.spread, read_out(cut, other, (0, 1))],
        "at its edge": taken(torch.tensor([29, 3, 4, 8]), 4, occurrences=2),
        "three outputs": _of_outputs(weights, 3),
        "two outputs": _of_outputs(weights, 2),
    }


def _of_outputs(weights: ModelWeights, count: int) -> Any:
    cut = replace(weights, W_U=weights.W_U[:, :count], b_U=weights.b_U[:count])
    found = Extended.take(cut, run_of(cut), torch.arange(4), 4, tokens=4, occurrences=3, seed=1)
    return [found.named, found.lead, found.spread]


def carried(name: str) -> Callable[[], Any]:
    def answer() -> Any:
        weights = kind(name)
        found = extended_of(weights)
        index = torch.randint(9, (5, 7), generator=generator(4))
        plain = torch.stack([torch.arange(7), torch.arange(7).flip(0)])
        repeated = torch.tensor([[0, 1, 2, 0, 1, 2, 0], [5, 4, 3, 5, 4, 3, 5]])
        return [carry(weights, found, rows) for rows in (index, plain, repeated, repeated[:, :5])]

    return answer


def keys_that_match() -> Any:
    return matched_keys(torch.tensor([[3, 1, 3, 1, 2, 3], [0, 0, 1, 2, 1, 0]])).nonzero()


def deep(name: str) -> Callable[[], Any]:
    def answer() -> Any:
        weights = kind(name)
        found = extended_of(weights)
        plain = carry(weights, found, torch.stack([torch.arange(7), torch.arange(7).flip(0)]))
        rows = [deep_table(weights, found, plain, relation=RELATION, seed=seed) for seed in (1, 2)]
        cut = replace(weights, W_U=weights.W_U[:, :5], b_U=weights.b_U[:5])
        return [*rows, deep_table(cut, found, plain, relation=RELATION, seed=1)[-8:]]

    return answer


def deep_of_few_places() -> Any:
    weights = kind("plain")
    found = []
    for context in (2, 3, 4):
        extended = Extended.take(
            weights, run_of(weights), torch.arange(10), context, tokens=6, occurrences=4, seed=5
        )
        plain = carry(weights, extended, torch.arange(context)[None])
        found.append(deep_table(weights, extended, plain, relation=RELATION, seed=1))
    return found


CASES: dict[str, Callable[[], Any]] = {
    **{f"pathsum, {name}": paths_summed(name) for name in KINDS},
    **{f"pathsum, edges, {name}": edges_summed(name) for name in KINDS},
    "pathsum, names": names_of_nodes,
    "pathsum, unread": unread,
    "profiles": profiles,
    "effects": readings,
    "table, shares": shares,
    **{f"table, {name}": table(name) for name in KINDS},
    "table, other outputs": table_of_other_outputs,
    "table, many tokens": table_of_many_tokens,
    **{f"table, queries and keys, {name}": queries_and_keys(name) for name in KINDS},
    **{f"extended, {name}": extended(name) for name in KINDS},
    "extended, settings": extended_settings,
    **{f"carried, {name}": carried(name) for name in KINDS},
    "carried, keys": keys_that_match,
    **{f"deep table, {name}": deep(name) for name in KINDS},
    "deep table, few places": deep_of_few_places,
}
