"""k-hop induction: blocks [x pi(x)] in random order, then an item; the answer is pi^k of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.tasks.base import Batch
from imir_detect.tasks.blocks import Offsets, place_unlike_blocks, random_order
from imir_detect.tasks.checks import (
    Rule,
    at_least,
    one_of,
    placed_blocks,
    placed_query,
    require,
    right_types,
    shares,
)
from imir_detect.tasks.family import BlockTask, ask_last, last_place, point_mass
from imir_detect.tasks.keyed import read_value
from imir_detect.tasks.labels import LOGITS, Edge, ExpectedCircuit, ExpectedUnit, at_places

Structure = Literal["cycle", "permutation", "chain"]
STRUCTURES: tuple[Structure, ...] = ("cycle", "permutation", "chain")
VALUE_PLACE = "the value's place"


@dataclass(frozen=True)
class KHop(BlockTask):
    """Blocks [x pi(x)], then an item; the answer is reached by k steps of pi.

    Every sequence draws its map pi anew.

    - `hops`: k, from 1 to 4. `n_blocks`: complete blocks, repeats and distractors included.
    - `structure`: "cycle": pi is one cycle through all items; "permutation": any permutation,
      fixed points included; "chain": x_0 -> x_1 -> ..., open at the end, asked where k steps are
      left.
      On a cycle of m links, k steps forward are m - k steps back: a second way to solve it.
    - `distractors`: blocks on a cycle of their own, which no question enters (0, or at least 2).
    - `burstiness`: how often the block of the first hop stands in the context.
    - `n_rare`: at least twice the items; with fewer, a model learns a shortcut (every item is
      shown, so exclusion tells much) that does not carry over.
    - `label_noise`, `offsets`, `positions`, `query_never_first`: as in recall.

    >>> KHop(hops=2, n_blocks=6, distractors=2).n_links
    4
    """

    hops: int = 2
    n_blocks: int = 6
    n_rare: int = 32
    structure: Structure = "cycle"
    distractors: int = 0
    burstiness: int = 1
    label_noise: float = 0.0
    offsets: Offsets = "consecutive"
    positions: int | None = None
    query_never_first: bool = False

    name = "k_hop"

    def __post_init__(self) -> None:
        require(self.name, right_types(self))
        require(self.name, at_least(self, n_blocks=1, distractors=0))
        least = self.hops + (self.structure == "cycle")
        items = self.n_links + (self.structure == "chain") + self.distractors
        require(
            self.name,
            [
                Rule(1 <= self.hops <= 4, f"hops={self.hops}", "1 .. 4", "change hops"),
                one_of(self, "structure", STRUCTURES),
                placed_query(self),
                Rule(
                    self.distractors != 1,
                    "distractors=1",
                    "0, or a cycle of at least 2",
                    "change distractors",
                ),
                Rule(
                    self.n_links >= max(least, 2),
                    f"{self.n_links} links (n_blocks less distractors and repeats)",
                    f"at least {max(least, 2)} for {self.hops} hops on a {self.structure}",
                    "raise n_blocks or lower hops",
                ),
                Rule(
                    self.n_rare >= 2 * items,
                    f"n_rare={self.n_rare} with {items} items",
                    f"at least {2 * items}: twice the items, or a shortcut is learned",
                    "raise n_rare or lower n_blocks",
                ),
                *shares(self, "label_noise"),
                *placed_blocks(self),
            ],
        )

    @property
    def n_links(self) -> int:
        """Different blocks of the asked map."""
        return self.n_blocks - self.distractors - self.burstiness + 1

    @property
    def block_lengths(self) -> tuple[int, ...]:
        return (*[2] * self.n_blocks, 1)

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        circuits = k_hop_circuits(self.hops)
        if self.offsets != "consecutive":
            return circuits
        hops = [f"hop {h + 1}" for h in range(self.hops)]
        return tuple(at_places(circuit, VALUE_PLACE, hops) for circuit in circuits)

    def draw(self, n: int, *, generator: torch.Generator) -> Batch:
        return self._draw(n, generator)[0]

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """Clean sequences, and the same ones asked from another item of the map."""
        other = Rule(
            self._starts > 1,
            f"a chain of {self.n_links} links with hops={self.hops}",
            "a second item from which k steps are left",
            "raise n_blocks",
        )
        require(self.name, [other])
        return self._draw(n, generator)

    @property
    def _starts(self) -> int:
        """Items that may be asked."""
        return self.n_links - (self.hops - 1 if self.structure == "chain" else 0)

    def _draw(self, n: int, g: torch.Generator) -> tuple[Batch, Batch]:
        tokens = random_order(n, self.n_rare, generator=g)
        source, image = self._links(n, g)
        first = source[:, :1]
        keys, values = tokens.gather(1, source), tokens.gather(1, image)
        if self.distractors:
            start = self.n_links + (self.structure == "chain")
            cycle = tokens[:, start : start + self.distractors]
            keys = torch.cat([keys, cycle], dim=1)
            values = torch.cat([values, cycle.roll(-1, dims=1)], dim=1)
        block = place_unlike_blocks(
            n, self.n_blocks, self.burstiness, never_first=self.query_never_first, generator=g
        )
        context = torch.stack([keys.gather(1, block), values.gather(1, block)], dim=-1)
        places = self.place(n, generator=g)
        clean, corrupt = (
            self._ask(
                context,
                tokens.gather(1, item),
                tokens.gather(1, _walk(source, image, item, self.hops)),
                places,
            )
            for item in (first, (first + 1) % self._starts)
        )
        return clean, corrupt

    def _links(self, n: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
        """(n, n_links) items and their images; link 0 starts at the asked item."""
        m = self.n_links
        item = torch.arange(m).expand(n, -1)
        if self.structure == "cycle":
            return item, (item + 1) % m
        if self.structure == "permutation":
            return item, random_order(n, m, generator=g)
        start = torch.randint(self._starts, (n, 1), generator=g)
        source = (start + item) % m
        return source, source + 1

    def _ask(self, context: Tensor, query: Tensor, target: Tensor, places: Tensor | None) -> Batch:
        tokens = torch.cat([context.flatten(1), query], dim=1)
        answer = last_place(context[..., 1], target[:, 0], 2, 1)
        return ask_last(tokens, target[:, 0], answer, places)

    def last_law(self, batch: Batch) -> Float[Tensor, "n vocab"]:
        tokens = batch.tokens
        for _ in range(self.hops):
            value, _ = read_value(tokens, 1)
            tokens = torch.cat([tokens[:, :-1], value[:, None]], dim=1)
        return point_mass(tokens[:, -1], self.vocab_size)


def _walk(
    source: Int[Tensor, "n links"], image: Tensor, item: Int[Tensor, "n 1"], hops: int
) -> Int[Tensor, "n 1"]:
    """The item reached from `item` by `hops` steps of source -> image."""
    step = torch.empty_like(image).scatter(1, source, image)
    for _ in range(hops):
        item = step.gather(1, item)
    return item


def k_hop_circuits(hops: int) -> tuple[ExpectedCircuit, ...]:
    """The canonical k-hop circuit (for one hop: induction); for two hops also two anti-matches.

    Canonical: a shift, one match a hop (keys read through the shift, queries through the match
    before), and a copy. It fails where the asked block stands first (token 0 attends to itself),
    which the aid mends.
    """

    def chain(kind: Literal["match", "anti_match"]) -> ExpectedCircuit:
        matches = [f"hop {h + 1}" for h in range(hops)]
        units = [ExpectedUnit("1 back", "shift", 0, 1)]
        units += [ExpectedUnit(name, kind, h + 1) for h, name in enumerate(matches)]
        edges: list[Edge] = [("1 back", name, "K") for name in matches]
        edges += [(a, b, "Q") for a, b in pairwise(matches)]
        edges += [(matches[-1], "copy", "V"), ("copy", LOGITS, "out")]
        units.append(ExpectedUnit("copy", "copy", hops))
        aid = ExpectedUnit("not itself", "no_self_match", 1)
        word = "k_hop" if hops > 1 else "induction"
        return ExpectedCircuit(word, tuple(units), tuple(edges), aids=(aid,))

    return (chain("match"), chain("anti_match")) if hops == 2 else (chain("match"),)
