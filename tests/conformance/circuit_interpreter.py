"""Runs an expected circuit as what it says, with hard attention, on sequences of its task.

Every place holds its own token; a unit adds one more token to every place:
- shift j: the token j places back (from the first place on, its own).
- match: scores 1 where the token it reads as key equals the one it reads as query, among places
  up to this one; several units that feed the same one are one head, and their scores add up. It
  attends to the best places (not to its own place where it has to look elsewhere) and holds the
  token of one of them, or none if they differ.
- place: only places of its kind may be attended to.
- copy: the best-scored places of what feeds it through V; it gives their token, or the token that
  a unit of an earlier stage holds there.
Anything else (averaging, associations, positions) is outside what it can run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from imir_detect.tasks.labels import LOGITS, ExpectedCircuit

Tokens = Sequence[int]


def run_circuit(
    circuit: ExpectedCircuit, tokens: Tokens, allowed: Callable[[int], bool], at: int
) -> int | None:
    """The token that the circuit votes for at place `at`; None where its votes are split."""
    return Run(circuit, tokens, allowed).logits(at)


class Run:
    def __init__(
        self, circuit: ExpectedCircuit, tokens: Tokens, allowed: Callable[[int], bool]
    ) -> None:
        self.circuit, self.tokens, self.allowed = circuit, tokens, allowed
        self.units = {unit.name: unit for unit in circuit.units}

    def sources(self, target: str, port: str) -> list[str]:
        return [a for a, b, p in self.circuit.edges if b == target and p == port]

    def token(self, sources: list[str], place: int) -> int | None:
        """What the sources (one head) hold at a place; without sources, the place's own token."""
        if not sources:
            return self.tokens[place]
        first = self.units[sources[0]]
        if first.kind == "shift":
            offset = first.offset
            assert offset is not None
            return self.tokens[place - offset] if offset <= place else None
        found = {self.tokens[p] for p in self.attended(sources, place)}
        return found.pop() if len(found) == 1 else None

    def attended(self, heads: list[str], at: int) -> list[int]:
        """The best-scored places of one head made of several units."""
        shifts = [self.units[h] for h in heads if self.units[h].kind == "shift"]
        if shifts:
            offset = shifts[0].offset
            assert offset is not None
            return [at - offset] if offset <= at else []
        scores: Counter[int] = Counter()
        for head in heads:
            keys = self.sources(head, "K")
            confined = [k for k in keys if self.units[k].kind == "place"]
            keys = [k for k in keys if k not in confined]
            query = self.token(self.sources(head, "Q"), at)
            for place in range(at):
                key = self.token(keys, place)
                if query is not None and key == query and (not confined or self.allowed(place)):
                    scores[place] += 1
        best = max(scores.values(), default=0)
        return [place for place, score in scores.items() if score == best]

    def logits(self, at: int) -> int | None:
        votes: Counter[int] = Counter()
        for name in self.sources(LOGITS, "out"):
            stage = self.units[name].stage
            feeds = self.sources(name, "V")
            if not feeds:
                votes[self.tokens[at]] += 1
                continue
            if any(self.units[f].kind == "shift" and self.units[f].stage == stage for f in feeds):
                heads, content = feeds, []
            else:
                heads = [f for f in feeds if self.units[f].stage == stage]
                content = [f for f in feeds if f not in heads]
            for place in self.attended(heads, at):
                token = self.token(content, place)
                if token is not None:
                    votes[token] += 1
        top = votes.most_common(2)
        split = len(top) == 2 and top[0][1] == top[1][1]
        return None if not top or split else top[0][0]
