"""Contexts in which the query's token stood before, and what that match changes.

Every in-context circuit is judged here first: on contexts with a match and on the same contexts
without it, so that a head that attends to a fixed place, or a model that guesses a word of the
context, gains nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Bool, HeadIndex, Int
from imir_detect.circuits.core import Coverage, short
from imir_detect.circuits.probe import Probe, answers
from imir_detect.coordinates.pathsum import Trace, sum_paths
from imir_detect.frame.contexts import Contexts
from imir_detect.frame.lookups import Lookup, matching_contexts, without_match

FEWEST = 8  # contexts below which nothing is said about a set of places


@dataclass(frozen=True)
class Matched:
    """Contexts of one lookup, and what the match brings against the same contexts without it:
    attention to the wanted position (`lift`) and to the earlier copy itself (`same`), head by head,
    and answers that win (`answer_lift`). `right`: answers that win, with the match. All are per
    context."""

    contexts: Contexts
    trace: Trace
    lift: dict[HeadIndex, Tensor]
    same: dict[HeadIndex, Tensor]
    answer_lift: Tensor
    right: Tensor
    lookup: Lookup

    @property
    def target(self) -> Int[Tensor, " n"]:
        return self.contexts.match + self.lookup.offset

    @property
    def looked(self) -> Int[Tensor, " n"]:
        """Where the copying head looks: at the wanted token. One that stands before the copy may
        also be read at the copy, where a previous-token head has put it: whichever the match draws
        more attention to."""
        return self.contexts.match if self._at_copy else self.target

    @property
    def attends(self) -> dict[HeadIndex, Tensor]:
        """What the match adds to every head's attention to `looked`."""
        return self.same if self._at_copy else self.lift

    @property
    def _at_copy(self) -> bool:
        gained = [
            sum(max(0.0, float(lift.mean())) for lift in lifts.values())
            for lifts in (self.same, self.lift)
        ]
        return self.lookup.offset < 0 and gained[0] >= gained[1]

    def reached(self, hop: int) -> Int[Tensor, " n"]:
        """Where the token stands that the first `hop` + 1 matches lead to."""
        return self.contexts.links[:, hop] + self.lookup.offset

    @property
    def score(self) -> Tensor:
        """By which places are chosen: answers that win, at half their worth where they win without
        the match as well. The gain alone would be noisier; answers alone are won by any copying."""
        return (self.right + self.answer_lift) / 2

    def within(self, cells: Bool[Tensor, "pos pos"]) -> Matched:
        """Only the contexts whose (query, match) lies in `cells`."""
        keep = cells[self.contexts.query, self.contexts.match]
        return Matched(
            self.contexts.select(keep),
            self.trace.select(keep),
            {head: lift[keep] for head, lift in self.lift.items()},
            {head: lift[keep] for head, lift in self.same.items()},
            self.answer_lift[keep],
            self.right[keep],
            self.lookup,
        )


def observe(
    probe: Probe,
    lookup: Lookup,
    asked: Int[Tensor, " asked"] | None,
    *,
    stream: int,
    n: int,
    cells: Bool[Tensor, "pos pos"] | None = None,
    fill: Int[Tensor, " fill"] | None = None,
) -> Matched:
    """Sum all paths on up to n contexts with a match (at `cells`, where given), and on the same
    contexts without it. `fill`: tokens of the rest of the context (default: the probe's
    vocabulary)."""
    weights, generator = probe.weights, probe.generator(stream)
    contexts = matching_contexts(
        n,
        probe.context,
        probe.vocabulary if fill is None else fill,
        lookup,
        asked=asked,
        cells=cells,
        generator=generator,
    )
    plain = without_match(contexts, lookup, generator=generator)
    trace, control = sum_paths(weights, contexts.tokens), sum_paths(weights, plain.tokens)
    rows, query, match = contexts.rows, contexts.query, contexts.match

    def lift(key: Tensor) -> dict[HeadIndex, Tensor]:
        return {
            (layer, head): trace.attention[layer][rows, head, query, key]
            - control.attention[layer][rows, head, query, key]
            for layer, head in weights.heads
        }

    right = gained = torch.zeros(len(contexts), dtype=torch.float64)
    if weights.same_vocabulary:
        right = answers(weights, trace, contexts)
        gained = right - answers(weights, control, plain)
    return Matched(contexts, trace, lift(match + lookup.offset), lift(match), gained, right, lookup)


def competitors(seen: Matched) -> Tensor:
    """The tokens of every context that the query sees, without the wanted one; the wanted place
    is filled with the query's own token, which stands in the context twice anyway."""
    tokens, query = seen.contexts.tokens, seen.contexts.query
    own = tokens[seen.contexts.rows, query][:, None]
    visible = torch.arange(tokens.shape[1]) <= query[:, None]
    visible &= tokens != seen.contexts.wanted[:, None]
    return torch.where(visible, tokens, own)


def coverage_of(cells: Bool[Tensor, "pos pos"], length: int, lookup: Lookup) -> Coverage:
    """The share of (query, match) pairs that `cells` keeps, with the places left out named."""
    possible = lookup.cells(length)
    kept = cells & possible
    columns = possible.any(0)
    left_out = [int(p) for p in (columns & ~kept.any(0)).nonzero()[:, 0]]
    rows = possible.any(1)
    no_query = [int(i) for i in (rows & ~kept.any(1)).nonzero()[:, 0]]
    exceptions = []
    if left_out:
        exceptions.append(f"copies at positions {short(left_out)}")
    if no_query:
        exceptions.append(f"queries at positions {short(no_query)}")
    share = float(kept.sum()) / float(possible.sum())
    return Coverage(share, "positions", tuple(exceptions))
