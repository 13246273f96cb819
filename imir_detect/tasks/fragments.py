"""Reasoning with fragments: rules of one or two premises, chained ("a and b give c, c gives d")."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.tasks.base import Batch
from imir_detect.tasks.blocks import random_order
from imir_detect.tasks.checks import Rule, at_least, enough_rare, require, right_types, shares
from imir_detect.tasks.family import TaskDefaults, ask_last, last_place, point_mass
from imir_detect.tasks.labels import (
    LOGITS,
    Assumptions,
    Edge,
    ExpectedCircuit,
    ExpectedUnit,
    Symmetry,
    induction,
    permutations_of,
)

START, GIVES = 0, 1
EMPTY = -1  # no token: a premise that a rule does not have


@dataclass(frozen=True)
class Fragments(TaskDefaults):
    """Blocks [p gives c] and [p q gives c] in random order; then premises, whose end is asked.

    Rules form chains of `depth`: a first rule of one or two premises, then rules of one premise,
    each starting from the conclusion before. The question gives the premises of a first rule,
    and its answer is the last conclusion of that chain. Premises of first rules are spelled with
    few tokens, so that the same one stands in several rules.

    - `n_blocks`: rules; a multiple of `depth`. `binary`: how many chains start with two premises.
    - `n_rare`: tokens of premises and conclusions, drawn anew for every sequence.
    - `label_noise`: as in recall.

    A question with one premise is a token shorter; a second start token makes up for it.

    >>> task = Fragments(n_blocks=4, depth=2, binary=1)
    >>> task.chains, task.length
    (2, 17)
    """

    n_blocks: int = 6
    depth: int = 1
    binary: int = 3
    n_rare: int = 32
    label_noise: float = 0.0

    name = "fragments"

    def __post_init__(self) -> None:
        require(self.name, right_types(self))
        require(self.name, at_least(self, n_blocks=1, depth=1, binary=0))
        require(
            self.name,
            [
                Rule(
                    self.n_blocks % self.depth == 0,
                    f"n_blocks={self.n_blocks} with depth={self.depth}",
                    "a multiple of depth: every chain has depth rules",
                    "change n_blocks",
                ),
                Rule(
                    self.binary <= self.chains,
                    f"binary={self.binary} with {self.chains} chains",
                    "no more than the chains",
                    "lower binary or raise n_blocks",
                ),
                enough_rare(
                    self, self.n_stems + self.n_blocks, "the premises, a conclusion for every rule"
                ),
                *shares(self, "label_noise"),
            ],
        )

    @property
    def chains(self) -> int:
        return self.n_blocks // self.depth

    @property
    def unary(self) -> int:
        """Chains that start with one premise."""
        return self.chains - self.binary

    @property
    def n_stems(self) -> int:
        """Tokens that spell the premises of first rules: twice the ordered pairs needed."""
        pairs = next(s for s in range(2, 2 * self.binary + 3) if s * (s - 1) >= 2 * self.binary)
        return max(self.unary, pairs if self.binary else 1)

    @property
    def vocab_size(self) -> int:
        return 2 + self.n_rare

    @property
    def length(self) -> int:
        return 1 + 3 * self.n_blocks + self.binary + 3

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        rare = permutations_of([range(2, self.vocab_size)], self.vocab_size)
        return (Symmetry("rare tokens", "token", rare),)

    @property
    def assumptions(self) -> Assumptions:
        return Assumptions(None, False, True)

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        return (fragment_circuit(self.depth),)

    def draw(self, n: int, *, generator: torch.Generator) -> Batch:
        return self._draw(n, generator)[0]

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """Clean sequences, and the same rules asked for another chain of as many premises."""
        other = Rule(
            self.binary != 1 and self.unary != 1,
            f"{self.binary} chains of two premises and {self.unary} of one",
            "none or at least two of each: another question of the same length",
            "change binary or n_blocks",
        )
        require(self.name, [other])
        return self._draw(n, generator)

    def _draw(self, n: int, g: torch.Generator) -> tuple[Batch, Batch]:
        """The clean batch, and the one asked for the next chain of its kind."""
        first, rules = self._rules(n, g)
        order = random_order(n, self.n_blocks, generator=g)
        asked = torch.randint(self.chains, (n,), generator=g)
        context = rules.gather(1, order[..., None].expand(-1, -1, 4)).flatten(1)
        size = torch.where(asked < self.binary, self.binary, self.unary)
        start = torch.where(asked < self.binary, 0, self.binary)
        clean, corrupt = (
            self._ask(context, first, rules, chain)
            for chain in (asked, start + (asked - start + 1) % size)
        )
        return clean, corrupt

    def _rules(self, n: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
        """(n, chains, 2) first premises and (n, n_blocks, 4) rules; EMPTY where a token is not."""
        tokens = 2 + random_order(n, self.n_rare, generator=g)
        stems = self.n_stems
        first = torch.full((n, self.chains, 2), EMPTY)
        if self.binary:
            code = random_order(n, stems * (stems - 1), generator=g)[:, : self.binary]
            one, two = code // (stems - 1), code % (stems - 1)
            first[:, : self.binary, 0] = tokens.gather(1, one)
            first[:, : self.binary, 1] = tokens.gather(1, two + (two >= one))
        alone = random_order(n, stems, generator=g)[:, : self.unary]
        first[:, self.binary :, 1] = tokens.gather(1, alone)
        conclusion = tokens[:, stems : stems + self.n_blocks]
        rules = torch.full((n, self.chains, self.depth, 4), EMPTY)
        rules[:, :, 0, :2] = first
        rules[..., 2] = GIVES
        rules[..., 3] = conclusion.view(n, self.chains, self.depth)
        rules[:, :, 1:, 1] = rules[:, :, :-1, 3]
        return first, rules.view(n, self.n_blocks, 4)

    def _ask(self, context: Tensor, first: Tensor, rules: Tensor, chain: Tensor) -> Batch:
        n, row = len(context), torch.arange(len(context))
        premises = first[row, chain]
        head = torch.full((n, 2), START)
        head[:, 1] = torch.where(premises[:, 0] == EMPTY, START, EMPTY)
        gives = torch.full((n, 1), GIVES)
        padded = torch.cat([head, context, premises, gives], dim=1)
        tokens = padded[padded != EMPTY].view(n, self.length)
        target = rules[row, self.depth * (chain + 1) - 1, 3]
        return ask_last(tokens, target, last_place(tokens, target))

    def last_law(self, batch: Batch) -> Float[Tensor, "n vocab"]:
        tokens = batch.tokens
        length = tokens.shape[1]
        place = torch.arange(length)
        gives = tokens == GIVES
        # A block starts two places after the last GIVES before it; the first one, after START.
        after = torch.where(gives, place + 2, 0).cummax(dim=1).values.roll(1, dims=1)
        after[:, 0] = 0
        opening = (tokens == START).sum(dim=1, keepdim=True)
        two = place - torch.maximum(after, opening) == 2
        left = torch.where(two, tokens.roll(2, dims=1), EMPTY)
        right, conclusion = tokens.roll(1, dims=1), tokens.roll(-1, dims=1)
        rule = gives & (place < length - 1)
        want_left, want_right = left[:, -1:], right[:, -1:]
        for _ in range(self.depth):
            hit = rule & (left == want_left) & (right == want_right)
            want_right = conclusion.gather(1, hit.long().argmax(dim=1)[:, None])
            want_left = torch.full_like(want_right, EMPTY)
        return point_mass(want_right[:, 0], self.vocab_size)

    def token_name(self, token: int) -> str:
        return ("start", "gives")[token] if token < 2 else f"r{token - 2}"


def fragment_circuit(depth: int) -> ExpectedCircuit:
    """Match both premises across "gives", then one more match for every further rule.

    The units "after gives" confine the matches to conclusions. "same length" tells a rule of one
    premise from one of two that ends in it: four back (from the question: three) stands "gives".
    It fails for a rule of one premise that comes first of all.
    """
    start = induction(2, gap=1)
    units = [ExpectedUnit("4 back", "shift", 0, 4), *(u for u in start.units if u.name != "copy")]
    edges: list[Edge] = [edge for edge in start.edges if "copy" not in edge]
    edges += [("4 back", "same length", "K"), ("3 back", "same length", "Q")]
    head = ["match 1", "match 2", "same length"]
    units.append(ExpectedUnit("same length", "match", 1))
    for rule in range(1, depth + 1):
        if rule > 1:
            hop = f"rule {rule}"
            edges += [("2 back", hop, "K"), *((unit, hop, "Q") for unit in head)]
            units.append(ExpectedUnit(hop, "match", rule))
            head = [hop]
        guard = f"after gives, rule {rule}"
        units.append(ExpectedUnit(guard, "match", rule))
        edges.append(("1 back", guard, "K"))
        head.append(guard)
    units.append(ExpectedUnit("copy", "copy", depth))
    edges += [*((unit, "copy", "V") for unit in head), ("copy", LOGITS, "out")]
    kind = "k_hop" if depth > 1 else "induction_long_prefix"
    covers = "all but a question of one premise whose rule comes first"
    return ExpectedCircuit(kind, tuple(units), tuple(edges), covers=covers)
