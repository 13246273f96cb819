"""Predicted attention patterns: on random tokens that all differ, and on two periods of them.

Attention at fixed distances is judged where nothing repeats: with a period, "so many back" and "so
many after the earlier copy" can be the same place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex
from imir_detect.circuits.probe import Probe
from imir_detect.coordinates.pathsum import Attending, Trace, sum_paths
from imir_detect.frame.contexts import distinct_tokens, repeated_contexts

CONTEXTS = 96


Seen = TypeVar("Seen", bound=Attending)


@dataclass(frozen=True)
class Patterns(Generic[Seen]):
    """Paths summed on `CONTEXTS` rows of different tokens (`plain`), and on as many of two periods
    of tokens (`repeated`, with the period)."""

    plain: Seen
    repeated: Seen
    period: int

    @staticmethod
    def take(probe: Probe) -> Patterns[Trace]:
        tokens, period = repeated_contexts(
            CONTEXTS, probe.context, probe.vocabulary, generator=probe.generator(9)
        )
        different = distinct_tokens(
            CONTEXTS, probe.context, probe.vocabulary, generator=probe.generator(7)
        )
        weights = probe.weights
        return Patterns(sum_paths(weights, different), sum_paths(weights, tokens), period)

    def mean(self, head: HeadIndex, *, repeated: bool = False) -> Float[Tensor, "pos pos"]:
        """Mean attention pattern."""
        trace = self.repeated if repeated else self.plain
        return trace.attention[head[0]][:, head[1]].mean(0)

    def backs(self, head: HeadIndex, offsets: Iterable[int]) -> list[tuple[float, float]]:
        """For each offset, mean attention to i - offset over i > offset, and its z against permuted
        rows."""
        return list(_against_permuted(self.mean(head), offsets))

    def previous(self, head: HeadIndex) -> float:
        """Mean attention to i - 1 over i > 1, on repeated tokens."""
        pattern = self.mean(head, repeated=True)
        query = torch.arange(2, len(pattern))
        return float(pattern[query, query - 1].mean()) if len(query) else 0.0

    def behind_copy(self, head: HeadIndex, offset: int) -> float:
        """Mean attention to the token `offset` after the earlier copy, in the second period. The
        first repeated position is left out: what it repeats has no predecessor."""
        pattern = self.mean(head, repeated=True)
        query = torch.arange(self.period + 1, len(pattern))
        if len(query) == 0 or offset >= self.period:
            return 0.0
        return float(pattern[query, query - self.period + offset].mean())

    def errors(self, head: HeadIndex) -> tuple[float, float, float]:
        """Standard errors, over contexts, of `previous` and of `behind_copy` at 0 and 1."""
        rows = self.repeated.attention[head[0]][:, head[1]]
        back = torch.arange(2, rows.shape[-1])
        second = torch.arange(self.period + 1, rows.shape[-1])
        found = []
        for query, key in (
            (back, back - 1),
            (second, second - self.period),
            (second, second - self.period + 1),
        ):
            means = rows[:, query, key].mean(1)
            known = len(query) > 0 and len(rows) > 1
            found.append(float(means.std()) / len(rows) ** 0.5 if known else 0.0)
        return found[0], found[1], found[2]

    def to_first(self, head: HeadIndex) -> float:
        """Attention to position 0, mean over queries, that all but 5 % of the contexts exceed: a
        sink holds whatever token stands there, a chance favourite of a fresh model does not."""
        pattern = self.plain.attention[head[0]][:, head[1], 2:, 0]
        return float(pattern.mean(1).quantile(0.05)) if pattern.shape[1] else 0.0


def _against_permuted(
    pattern: Float[Tensor, "pos pos"], offsets: Iterable[int]
) -> Iterator[tuple[float, float]]:
    """For each offset, mean of pattern[i, i - offset] over i > offset, and its z when every row's
    visible entries are permuted: sums over the rows that have such an entry."""
    size = len(pattern)
    place = torch.arange(size)
    visible = place + 1
    mean = 1 / visible.to(pattern.dtype)
    variance = (pattern - mean[:, None]).square().tril().sum(1) / visible
    back = (place[:, None] - place)[:, 1:]
    seen = back >= 0
    total = pattern.new_zeros(size).index_add_(0, back[seen], pattern[:, 1:][seen]).tolist()
    from_row = [x.flip(0).cumsum(0).flip(0).tolist() for x in (mean, variance)]
    for offset in offsets:
        count = size - offset - 1
        if count < 1:
            yield 0.0, 0.0
            continue
        expected, spread = from_row[0][offset + 1], math.sqrt(from_row[1][offset + 1])
        z = (total[offset] - expected) / spread if spread > 0 else 0.0
        yield total[offset] / count, z
