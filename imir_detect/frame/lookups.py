"""What a context asks: a query whose token stood before, and the token that this makes right.

One kind of lookup covers induction and its kin. They differ in where the wanted token stands
from the earlier copy (`offset`), in how many matches lead to it (`hops`), and in how many tokens
must match (`prefix`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from imir_detect._typing import Bool, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.contexts import Contexts, distinct_tokens, need, swap_in
from imir_detect.frame.template import Template


@dataclass(frozen=True)
class Lookup:
    """- `offset`: places from the copy of the query's token to the wanted one; -1: one before it.
    - `hops`: matches to follow. With 2, the token behind the query's copy is looked up in turn.
    - `closed`: with several hops, all pairs of places belong to one closed chain, so that every
      token before the query stands twice: as models see it that are trained on whole maps.
    - `prefix`: with 2, the token before the query must match, too: a rival copy of the query's
      token stands behind another token.
    - `lag`: with 1, it is the token before the query that stood earlier.
    - `template`: separators in the context, where the model's sequences have them. The query's
      token is one of them with a lag, and so is the token before it with a prefix; no other token
      that the lookup speaks of is.

    >>> str(Lookup()), str(Lookup(hops=2)), str(Lookup(prefix=2)), str(Lookup(-1))
    ('offset 1', '2 hops', 'prefix of 2', 'offset -1')
    """

    offset: int = 1
    hops: int = 1
    prefix: int = 1
    closed: bool = False
    lag: int = 0
    template: Template | None = None

    def __post_init__(self) -> None:
        mixed = min(self.hops, self.prefix) > 1 or (
            self.closed and (self.hops, self.offset) < (2, 1)
        )
        if self.hops < 1 or self.prefix not in (1, 2) or mixed:
            raise InvalidArgumentError(
                "no such lookup about a match",
                got=f"offset={self.offset}, hops={self.hops}, prefix={self.prefix}, "
                f"closed={self.closed}",
                wanted="several hops (closed or not) or a prefix of 2, not both",
                todo="change one of them",
            )
        lagged = self.lag not in (0, 1) or (self.lag == 1 and not self.plain)
        if lagged or (self.template is not None and self.hops > 1):
            raise InvalidArgumentError(
                "no contexts are drawn for this lookup",
                got=f"lag={self.lag}, prefix={self.prefix}, hops={self.hops}"
                + ("" if self.template is None else ", with separators"),
                wanted="a lag of 1 without hops or a prefix, and separators without hops",
                todo="change one of them",
            )
        if self.template is not None and self.prefix > 1 and len(self.template.separators) < 2:
            raise InvalidArgumentError(
                "a prefix of separators tells two copies apart",
                got=f"{len(self.template.separators)} separator",
                wanted="at least 2",
                todo="add one, or ask without a prefix",
            )

    @property
    def plain(self) -> bool:
        """Whether one copy of one token decides."""
        return self.hops == 1 and self.prefix == 1

    @property
    def links(self) -> int:
        """Places of copies in one context: one a hop; with a prefix, the rival's and the right."""
        return self.hops + self.prefix - 1

    @property
    def _before(self) -> int:
        return max(self.prefix - 1, -self.offset)

    @property
    def _behind(self) -> int:
        return max(self.offset, 0)

    @property
    def least(self) -> int:
        """The fewest positions of a context that can ask it."""
        links = self.links + 2 * self.closed  # the shortest closed chain has two links more
        return links * (self._before + self._behind + 1) + self.prefix + self.lag

    def cells(self, length: int) -> Bool[Tensor, "pos pos"]:
        """cells[i, p]: a query at i may repeat a token at p, with all that belongs to it before."""
        least = self.prefix + self.lag + self._behind
        cells = torch.ones(length, length, dtype=torch.bool).tril(-least)
        cells[:, : self._before] = False
        if self.template is not None:
            separates = self.template.places(length)

            def at(step: int) -> Tensor:
                return separates[(torch.arange(length) + step) % length]

            query = at(0) if self.lag else ~at(0)
            match = ~at(0) & ~at(self.offset)
            if self.lag:
                query = query & ~at(-1)
            if self.prefix > 1:
                query, match = query & at(-1), match & at(-1)
            cells &= query[:, None] & match
        return cells

    def clash(self, a: Tensor, b: Tensor) -> Tensor:
        """Whether what belongs to copies at a and at b overlaps."""
        return (a - b).abs() <= self._before + self._behind

    def told(self, links: Int[Tensor, "n links"]) -> tuple[Int[Tensor, " n"], ...]:
        """The places of the tokens that the lookup speaks of, the wanted one last."""
        if self.prefix > 1:
            match = links[:, -1]
            before = () if self.template is not None else (match - 1,)
            return *before, match, match + self.offset
        return links[:, 0], *(links + self.offset).T

    def __str__(self) -> str:
        if self.hops > 1:
            return f"{self.hops} hops" + (" on a closed chain" if self.closed else "")
        text = f"prefix of {self.prefix}" if self.prefix > 1 else f"offset {self.offset}"
        text += ", asked one place later" if self.lag else ""
        return text if self.template is None else f"{text}, with {self.template}"


INDUCTION = Lookup()


def matching_contexts(
    n: int,
    length: int,
    vocabulary: Int[Tensor, " vocab"],
    lookup: Lookup = INDUCTION,
    *,
    asked: Int[Tensor, " asked"] | None = None,
    cells: Bool[Tensor, "pos pos"] | None = None,
    generator: torch.Generator,
) -> Contexts:
    """Contexts whose query repeats an earlier token, and all that the lookup ties to it.

    The query's index i and the index p of the copy that decides are drawn together, uniformly from
    `cells` (default: all pairs that the lookup allows); the other copies from the columns of
    `cells` in that row. Where these find no room the context is left out: there may be fewer than
    n. With `asked`, the query and what it leads to come from those tokens and the rest from the
    whole vocabulary.
    """
    need(length, lookup.least)
    g = generator
    if lookup.template is not None:
        vocabulary = lookup.template.rest(vocabulary)
        asked = None if asked is None else lookup.template.rest(asked)
    tokens = distinct_tokens(n, length, vocabulary, generator=g)
    if lookup.template is not None:
        tokens = lookup.template.write(tokens, generator=g)
    allowed = lookup.cells(length) if cells is None else cells & lookup.cells(length)
    pairs = allowed.nonzero()
    query, match = pairs[torch.randint(len(pairs), (n,), generator=g)].T
    if lookup.closed:
        return _closed_chain(tokens, query, match, allowed, lookup, generator=g)
    links = match[:, None]
    for _ in range(lookup.links - 1):
        free = allowed[query] & ~lookup.clash(links[:, :, None], torch.arange(length)).any(1)
        room = free.any(1)
        tokens, query, links = tokens[room], query[room], links[room]
        drawn = links[:, :1]
        if len(query):
            drawn = torch.multinomial(free[room].double(), 1, generator=g)
        links = torch.cat([drawn, links], dim=1)
    told = lookup.told(links)
    if asked is not None and len(asked) >= len(told) and len(query):
        some = distinct_tokens(len(query), len(told), asked, generator=g)
        tokens = swap_in(tokens, torch.stack(told, 1), some)
    return _tied(tokens, query, links, lookup, generator=g)


def _tied(
    tokens: Tensor, query: Tensor, links: Tensor, lookup: Lookup, *, generator: torch.Generator
) -> Contexts:
    """Copies written where the lookup wants them."""
    rows, match = torch.arange(len(tokens)), links[:, -1]
    if lookup.prefix > 1:
        if lookup.template is not None:
            right = tokens[rows, match - 1]
            rival = lookup.template.another(right, generator=generator)
            tokens[rows, links[:, 0] - 1] = rival
        tokens[rows, links[:, 0]] = tokens[rows, match]
        tokens[rows, query - 1] = tokens[rows, match - 1]
    for k in range(1, lookup.hops):
        tokens[rows, links[:, k]] = tokens[rows, links[:, k - 1] + lookup.offset]
    tokens[rows, query - lookup.lag] = tokens[rows, links[:, 0]]
    wanted = tokens[rows, match + lookup.offset]
    return Contexts(tokens, query, match, wanted, links)


def _closed_chain(
    tokens: Tensor,
    query: Tensor,
    match: Tensor,
    allowed: Tensor,
    lookup: Lookup,
    *,
    generator: torch.Generator,
) -> Contexts:
    """Pairs of places from `match` both ways, as far as the query leaves room, whose tokens make
    one closed chain in random order; the links that end at `match` are part of it."""
    rows, place = torch.arange(len(tokens)), torch.arange(tokens.shape[1])
    starts = ((place - match[:, None]) % 2 == 0) & (place + 1 < query[:, None])
    count, hops = starts.sum(1), lookup.hops
    # A random order of the chain's pairs: other places come last, and `match` stands last of the
    # links.
    score = torch.rand(len(tokens), len(place), generator=generator) + 2 * ~starts
    order = score.argsort(1)
    at_match = (order == match[:, None]).int().argmax(1)
    turn = (torch.arange(len(place)) + at_match[:, None] - (hops - 1)) % count[:, None]
    order = order.gather(1, turn)
    links = order[:, :hops]
    room = (count > hops + 1) & allowed[query].gather(1, links).all(1)
    for k in range(int(count.max())):
        here, there = order[:, k], order.gather(1, ((k + 1) % count)[:, None])[:, 0]
        live = k < count
        tokens[rows[live], here[live] + 1] = tokens[rows[live], there[live]]
    tokens[rows, query] = tokens[rows, links[:, 0]]
    wanted = tokens[rows, match + 1]
    return Contexts(tokens, query, match, wanted, links).select(room)


def without_match(
    contexts: Contexts, lookup: Lookup = INDUCTION, *, generator: torch.Generator
) -> Contexts:
    """The same contexts with the last copy replaced by a token that stands nowhere else.

    Nothing but the match is lost: the query, the wanted token and every position stay. With a
    prefix, the right copy and its rival swap the tokens before them instead: which of two copies
    is preferred for other reasons then shows on both sides alike. On a closed chain the last copy
    and the start of a pair that is no link swap theirs, so that the chain goes on elsewhere: with a
    token missing, the answer would show by exclusion, and the wanted token's own places stay.
    """
    tokens = contexts.tokens.clone()
    rows, none = contexts.rows, torch.full_like(contexts.match, -1)
    if len(contexts) == 0:
        return replace(contexts, match=none)
    if lookup.prefix > 1:
        right, rival = contexts.match - 1, contexts.links[:, 0] - 1
        return replace(contexts, tokens=_swapped(tokens, right, rival), match=none)
    if lookup.closed:
        place = torch.arange(tokens.shape[1])
        free = (place - contexts.match[:, None]) % 2 == 0
        free &= (place + 1 < contexts.query[:, None]) & (tokens != contexts.wanted[:, None])
        free[rows[:, None], contexts.links] = False
        other = free.int().argmax(1)
        return replace(contexts, tokens=_swapped(tokens, contexts.match, other), match=none)
    # The query's own slot held a token of its own before the repeat was written there; drawing
    # a row of tokens and taking the first that is unused gives the like of it: one is, since the
    # row to change holds a token twice.
    vocabulary = torch.unique(contexts.tokens)
    if lookup.template is not None:
        vocabulary = lookup.template.rest(vocabulary)
    candidates = distinct_tokens(
        len(contexts), min(len(vocabulary), tokens.shape[1]), vocabulary, generator=generator
    )
    used = (candidates[:, :, None] == tokens[:, None, :]).any(-1)
    copies = candidates == tokens[rows, contexts.query - lookup.lag][:, None]
    best = (2 * ~used + 1 * ~copies).argmax(1)
    tokens[rows, contexts.match] = candidates[rows, best]
    return replace(contexts, tokens=tokens, match=none)


def _swapped(tokens: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Rows with the tokens at places a and b exchanged."""
    rows, result = torch.arange(len(tokens)), tokens.clone()
    result[rows, a], result[rows, b] = tokens[rows, b], tokens[rows, a]
    return result
