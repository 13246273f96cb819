"""Sampled contexts: random tokens in random places, the law that the frame's symmetries leave.

Predicted behaviour is an average over the measured spread of scores, never a function of a mean
effect alone; the average is taken over these contexts. They come from no task and no data: tokens
are drawn without replacement, so that nothing repeats but what is made to repeat.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from imir_detect._typing import Int
from imir_detect.errors import InvalidArgumentError


@dataclass(frozen=True)
class Contexts:
    """Random contexts, each with one query.

    - `tokens` (n, pos). `query` (n): index i of the query; what stands after it is never read.
    - `match` (n): index p of the earlier copy of the query's token, -1 where it has none.
    - `wanted` (n): the token that would be right.
    - `links` (n, k): all copies that lead to it, the last of them at `match` (none by default).
    """

    tokens: Int[Tensor, "n pos"]
    query: Int[Tensor, " n"]
    match: Int[Tensor, " n"]
    wanted: Int[Tensor, " n"]
    links: Int[Tensor, "n links"] = field(default_factory=lambda: torch.zeros(0, 0).long())

    def __len__(self) -> int:
        return self.tokens.shape[0]

    @property
    def rows(self) -> Int[Tensor, " n"]:
        return torch.arange(len(self))

    def select(self, keep: Tensor) -> Contexts:
        """The contexts that a mask or an index keeps."""
        links = self.links[keep] if self.links.numel() else self.links
        return Contexts(
            self.tokens[keep], self.query[keep], self.match[keep], self.wanted[keep], links
        )


def distinct_tokens(
    n: int, length: int, vocabulary: Int[Tensor, " vocab"], *, generator: torch.Generator
) -> Int[Tensor, "n length"]:
    """n rows of different tokens; where the vocabulary is shorter than a row, it starts over."""
    size = len(vocabulary)
    if size <= 4096:
        rounds = -(-length // size)
        order = torch.cat(
            [torch.rand(n, size, generator=generator).argsort(1) for _ in range(rounds)], dim=1
        )
        return vocabulary[order[:, :length]]
    # A large vocabulary: draw with replacement and redraw the few rows in which a token repeats.
    drawn = torch.randint(size, (n, length), generator=generator)
    while True:
        ordered = drawn.sort(1).values
        clash = (ordered[:, 1:] == ordered[:, :-1]).any(1)
        if not clash.any():
            return vocabulary[drawn]
        drawn[clash] = torch.randint(size, (int(clash.sum()), length), generator=generator)


def repeated_contexts(
    n: int, length: int, vocabulary: Int[Tensor, " vocab"], *, generator: torch.Generator
) -> tuple[Int[Tensor, "n pos"], int]:
    """Two periods of the same random tokens, and the period: at most length // 2 and the
    vocabulary's size."""
    period = min(length // 2, len(vocabulary))
    tokens = distinct_tokens(n, max(period, 1), vocabulary, generator=generator)
    return torch.cat([tokens, tokens], dim=1)[:, :length], period


def asking_contexts(
    queries: Int[Tensor, " n"],
    wanted: Int[Tensor, " n"],
    length: int,
    vocabulary: Int[Tensor, " vocab"],
    *,
    places: Int[Tensor, " places"] | None = None,
    generator: torch.Generator,
) -> Contexts:
    """Random contexts that end in the given queries and hold neither these nor what is wanted.

    The query stands at one of `places`, drawn uniformly (default: 1 .. length - 1).
    """
    need(length, 2)
    n = len(queries)
    spare = distinct_tokens(n, min(length + 2, len(vocabulary)), vocabulary, generator=generator)
    taken = (spare == queries[:, None]) | (spare == wanted[:, None])
    spare = spare.gather(1, taken.int().argsort(dim=1, stable=True))
    tokens = spare[:, torch.arange(length) % max(1, spare.shape[1] - 2)]
    places = torch.arange(1, length) if places is None else places
    query = places[torch.randint(len(places), (n,), generator=generator)]
    tokens[torch.arange(n), query] = queries
    return Contexts(tokens, query, torch.full((n,), -1), wanted)


def swap_in(tokens: Tensor, places: Tensor, wanted: Tensor) -> Tensor:
    """Rows of different tokens with `wanted` at `places`; a token already there moves in turn."""
    tokens = tokens.clone()
    rows = torch.arange(len(tokens))
    for k in range(places.shape[1]):
        place, token = places[:, k], wanted[:, k]
        old = tokens[rows, place]
        tokens = torch.where(tokens == token[:, None], old[:, None], tokens)
        tokens[rows, place] = token
    return tokens


def need(length: int, least: int) -> None:
    """Raises where a context has fewer positions than a question needs."""
    if length < least:
        raise InvalidArgumentError(
            "the context is too short for this question",
            got=f"{length} positions",
            wanted=f"at least {least}",
            todo="raise context, or take a model with more positions",
        )
