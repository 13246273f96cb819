"""Sampled contexts: random tokens in random places, the law that the frame's symmetries leave.

Predicted behaviour is an average over the measured spread of scores, never a function of a mean
effect alone; the average is taken over these contexts. They come from no task and no data: tokens
are drawn without replacement, so that nothing repeats but what is made to repeat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from imir_detect._typing import Bool, Int
from imir_detect.errors import InvalidArgumentError


@dataclass(frozen=True)
class Contexts:
    """Random contexts, each with one query.

    - `tokens` (n, pos). `query` (n): index i of the query; what stands after it is never read.
    - `match` (n): index p of the earlier copy of the query's token, -1 where it has none.
    - `wanted` (n): the token that would be right.
    """

    tokens: Int[Tensor, "n pos"]
    query: Int[Tensor, " n"]
    match: Int[Tensor, " n"]
    wanted: Int[Tensor, " n"]

    def __len__(self) -> int:
        return self.tokens.shape[0]

    @property
    def rows(self) -> Int[Tensor, " n"]:
        return torch.arange(len(self))

    def select(self, keep: Tensor) -> Contexts:
        """The contexts that a mask or an index keeps."""
        return Contexts(self.tokens[keep], self.query[keep], self.match[keep], self.wanted[keep])


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


def matching_contexts(
    n: int,
    length: int,
    vocabulary: Int[Tensor, " vocab"],
    *,
    asked: Int[Tensor, " asked"] | None = None,
    offset: int = 1,
    cells: Bool[Tensor, "pos pos"] | None = None,
    generator: torch.Generator,
) -> Contexts:
    """Contexts whose query repeats an earlier token; the token `offset` after that is wanted.

    The query's index i and its copy's index p <= i - 1 - offset are drawn together, uniformly from
    `cells` (default: all such pairs). With `asked`, the query and the wanted token come from those
    tokens and the rest from the whole vocabulary.
    """
    _need(length, offset + 2)
    g = generator
    tokens = distinct_tokens(n, length, vocabulary, generator=g)
    allowed = all_cells(length, offset) if cells is None else cells & all_cells(length, offset)
    pairs = allowed.nonzero()
    query, match = pairs[torch.randint(len(pairs), (n,), generator=g)].T
    rows = torch.arange(n)
    if asked is not None and len(asked) >= 2:
        pair = distinct_tokens(n, 2, asked, generator=g)
        tokens = _swap_in(tokens, torch.stack([match, match + offset], 1), pair)
    tokens[rows, query] = tokens[rows, match]
    return Contexts(tokens, query, match, tokens[rows, match + offset])


def all_cells(length: int, offset: int) -> Bool[Tensor, "pos pos"]:
    """cells[i, p]: a query at i may repeat a token at p with the wanted one between them."""
    return torch.ones(length, length, dtype=torch.bool).tril(-1 - offset)


def without_match(contexts: Contexts, *, generator: torch.Generator) -> Contexts:
    """The same contexts with the earlier copy replaced by a token that stands nowhere else.

    Nothing but the match is lost: the query, the wanted token and every position stay.
    """
    tokens = contexts.tokens.clone()
    rows = contexts.rows
    # The query's own slot held a token of its own before the repeat was written there; drawing
    # one more row of tokens and taking the first that is unused gives the like of it.
    vocabulary = torch.unique(contexts.tokens)
    candidates = distinct_tokens(
        len(contexts), min(len(vocabulary), tokens.shape[1] + 1), vocabulary, generator=generator
    )
    used = (candidates[:, :, None] == tokens[:, None, :]).any(-1)
    copies = candidates == tokens[rows, contexts.query][:, None]
    best = (2 * ~used + 1 * ~copies).argmax(1)
    tokens[rows, contexts.match] = candidates[rows, best]
    return replace(contexts, tokens=tokens, match=torch.full_like(contexts.match, -1))


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
    _need(length, 2)
    n = len(queries)
    spare = distinct_tokens(n, min(length + 2, len(vocabulary)), vocabulary, generator=generator)
    taken = (spare == queries[:, None]) | (spare == wanted[:, None])
    spare = spare.gather(1, taken.int().argsort(dim=1, stable=True))
    tokens = spare[:, torch.arange(length) % max(1, spare.shape[1] - 2)]
    places = torch.arange(1, length) if places is None else places
    query = places[torch.randint(len(places), (n,), generator=generator)]
    tokens[torch.arange(n), query] = queries
    return Contexts(tokens, query, torch.full((n,), -1), wanted)


def _swap_in(tokens: Tensor, places: Tensor, wanted: Tensor) -> Tensor:
    """Rows of different tokens with `wanted` at `places`; a token already there moves in turn."""
    tokens = tokens.clone()
    rows = torch.arange(len(tokens))
    for k in range(places.shape[1]):
        place, token = places[:, k], wanted[:, k]
        old = tokens[rows, place]
        tokens = torch.where(tokens == token[:, None], old[:, None], tokens)
        tokens[rows, place] = token
    return tokens


def _need(length: int, least: int) -> None:
    if length < least:
        raise InvalidArgumentError(
            "the context is too short for this question",
            got=f"{length} positions",
            wanted=f"at least {least}",
            todo="raise context, or take a model with more positions",
        )
