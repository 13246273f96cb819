"""Associative recall: key-value blocks, then a key; the answer is its value (k = 2).

A sequence is n blocks [key value] and a query key: T = 2n + 1 tokens. Common tokens are paired by
the fixed relation R; rare ones get a fresh partner in every sequence. All blocks of one sequence
use different tokens, so that the answer in context is unambiguous.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.tasks.base import Axis, Batch, Ceiling
from imir_detect.tasks.blocks import Offsets, place_query, prefer_zipf, random_order
from imir_detect.tasks.ceilings import recall_ceiling
from imir_detect.tasks.checks import Rule, require
from imir_detect.tasks.family import BlockTask, point_mass
from imir_detect.tasks.keyed import ask_for, keyed_batch, read_value
from imir_detect.tasks.labels import (
    Assumptions,
    ExpectedCircuit,
    Symmetry,
    in_weights,
    induction,
    permutations_of,
    pointer_induction,
)
from imir_detect.tasks.recall_rules import recall_rules, type_rules


@dataclass(frozen=True)
class AssociativeRecall(BlockTask):
    """Blocks of a key and a value, then a key; the answer is its value.

    Tokens 0 .. n_common - 1 are common, the next n_rare are rare. With `directed` False, common
    tokens 2i and 2i + 1 are each other's partner (R is an involution); with True, the first half
    are keys and the second half their values, in order.

    - `n_blocks` n: complete blocks. `burstiness` b: how often the query's block stands among them.
    - `rare_frequency` f_r: chance that a block is rare. `variability` f_v: chance that a common
      block's value in this sequence is not R's.
    - `present` p: chance that the context holds the query's block, for queries that R answers; an
      association made in this sequence is always shown, since nothing else could answer it.
    - `zipf`: exponent of the common pairs' frequencies, 0 for uniform.
    - `label_noise`: chance that a training target is replaced by a uniform token. Probes and
      pairs carry none.
    - `offsets`: "consecutive" positions; "random": every block starts at an independent position
      below `positions`, blocks may collide; "disjoint": the same without collisions.
    - `query_never_first`: the query's block is not the first one (a first token attends to itself
      alone, so a pure induction circuit fails there).

    >>> task = AssociativeRecall(n_blocks=2, n_common=8, n_rare=0, rare_frequency=0.0)
    >>> batch = task.sample(1, generator=torch.Generator().manual_seed(0))
    >>> batch.tokens.shape, int(batch.targets[0, -1]) in batch.tokens[0].tolist()
    (torch.Size([1, 5]), True)
    """

    n_blocks: int = 8
    n_common: int = 32
    n_rare: int = 32
    rare_frequency: float = 0.5
    variability: float = 0.0
    present: float = 1.0
    burstiness: int = 1
    zipf: float = 0.0
    label_noise: float = 0.0
    directed: bool = False
    offsets: Offsets = "consecutive"
    positions: int | None = None
    query_never_first: bool = False

    def __post_init__(self) -> None:
        require(self.name, type_rules(self))
        require(self.name, recall_rules(self))

    name = "recall"

    @property
    def vocab_size(self) -> int:
        return self.n_common + self.n_rare

    @property
    def block_lengths(self) -> tuple[int, ...]:
        return (*[2] * self.n_blocks, 1)

    @property
    def distractors(self) -> int:
        """Blocks of the context that are not the query's (where it is shown)."""
        return self.n_blocks - self.burstiness

    @property
    def n_pairs(self) -> int:
        return self.n_common // 2

    @property
    def slots(self) -> int:
        """Different blocks that one draw needs: an absent query's comes on top of the n."""
        return self.n_blocks + (self.present < 1)

    @property
    def relation(self) -> Int[Tensor, " vocab"]:
        partner = torch.full((self.vocab_size,), -1)
        keys, values = self._pair_tokens()
        partner[keys] = values
        if not self.directed:
            partner[values] = keys
        return partner

    def _pair_tokens(self) -> tuple[Tensor, Tensor]:
        index = torch.arange(self.n_pairs)
        return (index, index + self.n_pairs) if self.directed else (2 * index, 2 * index + 1)

    # -- labels -----------------------------------------------------------------------------

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        size, found = self.vocab_size, [super().symmetries[-1]]
        if self.n_rare:
            rare = permutations_of([range(self.n_common, size)], size)
            found.insert(0, Symmetry("rare tokens", "token", rare))
        if self.n_common:
            why = f"pairs follow Zipf's law with exponent {self.zipf}" if self.zipf else ""
            found.insert(0, Symmetry("pairs of R", "token", self._pair_moves(), not why, why))
        return tuple(found)

    def _pair_moves(self) -> tuple[tuple[int, ...], ...]:
        """Generators of the relabellings that preserve R: whole pairs, and flips of one."""
        first, second = (tokens.tolist() for tokens in self._pair_tokens())
        moves = []
        for order in permutations_of([range(self.n_pairs)], self.n_pairs):
            image = list(range(self.vocab_size))
            for pair, goal in enumerate(order):
                image[first[pair]], image[second[pair]] = first[goal], second[goal]
            moves.append(tuple(image))
        if not self.directed:
            moves += permutations_of([[first[0], second[0]]], self.vocab_size)
        return tuple(moves)

    @property
    def assumptions(self) -> Assumptions:
        return Assumptions(
            r_invariant=self.zipf == 0 if self.rare_frequency < 1 else None,
            independent_offsets=self.offsets == "random",
            lexinvariant=True if self.rare_frequency > 0 else None,
        )

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        shown = "every question" if self.present == 1 else "questions whose block is shown"
        found = [induction(covers=shown), pointer_induction(shown)]
        if self.rare_frequency < 1 and self.variability < 1:
            found.append(in_weights("questions that R answers"))
        return tuple(found)

    def token_name(self, token: int) -> str:
        """Common pairs share a letter: "K3" and "V3" if R is directed, else "a3" and "b3"."""
        if token >= self.n_common:
            return f"r{token - self.n_common}"
        if self.directed:
            return f"{'KV'[token // self.n_pairs]}{token % self.n_pairs}"
        return f"{'ab'[token % 2]}{token // 2}"

    def last_law(self, batch: Batch) -> Float[Tensor, "n vocab"]:
        """The value shown for the query's key; where none is shown, R's."""
        value, found = read_value(batch.tokens, 1)
        known = self.relation[batch.tokens[:, -1]].clamp(min=0)
        return point_mass(torch.where(found, value, known), self.vocab_size)

    # -- sampling ---------------------------------------------------------------------------

    def draw(self, n: int, *, generator: torch.Generator) -> Batch:
        """`n` sequences by the task's law. Only the last position is asked."""
        g = generator
        rare = torch.rand(n, self.slots, generator=g) < self.rare_frequency
        fresh = torch.rand(n, self.slots, generator=g) < self.variability
        made_here = rare[:, 0] | fresh[:, 0]
        shown = made_here | (torch.rand(n, generator=g) < self.present)
        return self._assemble(rare, fresh, shown, generator=g)[0]

    def probe(self, axis: Axis, n: int, *, generator: torch.Generator) -> Batch | None:
        """`icl`: the query's association is fresh and shown; `iwl`: it is R's and absent.

        Fresh queries are rare or common in the proportion in which the task makes fresh
        associations of them, f_r : (1 - f_r) f_v; where it makes none, common with a value that
        is not R's. The block stands once, whatever the burstiness: where it stands twice, its
        value is the one that repeats, and a model can find that without looking at the query.
        Other blocks follow the task's law; where common tokens run out, fillers of the `iwl`
        probe keep R's value.
        """
        g = generator
        if axis == "iwl" and not self.n_common:
            return None
        slots = self.slots if axis == "icl" else self.n_blocks + 1
        rare = torch.rand(n, slots, generator=g) < self.rare_frequency
        fresh = torch.rand(n, slots, generator=g) < self.variability
        if axis == "icl":
            common_fresh = (1 - self.rare_frequency) * self.variability
            made_here = self.rare_frequency + common_fresh
            share = self.rare_frequency / made_here if made_here else 0.0
            rare[:, 0] = torch.rand(n, generator=g) < share
        else:
            rare[:, 0] = False
        fresh[:, 0] = axis == "icl"
        shown = torch.full((n,), axis == "icl")
        return replace(self, burstiness=1)._assemble(rare, fresh, shown, generator=g)[0]

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """Clean sequences, and the same ones asked for another block's key.

        Only the last token and its target differ; each is a sequence of the task itself, with
        its answer in context.
        """
        other = Rule(
            self.distractors >= 1,
            f"n_blocks={self.n_blocks}, burstiness={self.burstiness}",
            "at least one block that is not the query's",
            "raise n_blocks or lower burstiness",
        )
        require(self.name, [other])
        g = generator
        rare = torch.rand(n, self.slots, generator=g) < self.rare_frequency
        fresh = torch.rand(n, self.slots, generator=g) < self.variability
        shown = torch.ones(n, dtype=torch.bool)
        clean, keys, values = self._assemble(rare, fresh, shown, generator=g)
        return clean, ask_for(clean, keys[:, 1:2], values[:, 1], 2)

    def _assemble(
        self, rare: Tensor, fresh: Tensor, shown: Tensor, *, generator: torch.Generator
    ) -> tuple[Batch, Tensor, Tensor]:
        """Blocks to sequences. Block 0 is the query's. Also gives keys and values per block."""
        g, n = generator, rare.shape[0]
        keys, values = self._draw_blocks(rare, fresh, generator=g)
        block = place_query(
            n,
            self.n_blocks,
            self.burstiness,
            shown,
            never_first=self.query_never_first,
            generator=g,
        )
        positions = self.place(n, generator=g)
        return keyed_batch(keys[..., None], values, block, positions), keys, values

    def _draw_blocks(
        self, rare: Tensor, fresh: Tensor, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """(n, slots) keys and values, all different within a sequence.

        Common blocks take a pair each; a fresh value is a token of a pair that no block has.
        """
        g, (n, slots) = generator, rare.shape
        keys = values = torch.zeros(n, slots, dtype=torch.long)
        if self.n_pairs:
            order = prefer_zipf(n, self.n_pairs, self.zipf, generator=g)
            first, second = self._pair_tokens()
            used, unused = order.gather(1, _rank(~rare, self.n_pairs)), order[:, slots:]
            keys, values = first[used], second[used]
            spare = second[unused]
            if not self.directed:
                flip = torch.rand(n, slots, generator=g) < 0.5
                keys, values = torch.where(flip, values, keys), torch.where(flip, keys, values)
                spare = torch.cat([first[unused], spare], dim=1)
            if spare.shape[1]:
                replaced = fresh & ~rare
                replaced &= replaced.cumsum(1) <= spare.shape[1]
                mixed = spare.gather(1, random_order(n, spare.shape[1], generator=g))
                values = torch.where(
                    replaced, mixed.gather(1, _rank(replaced, spare.shape[1])), values
                )
        if self.n_rare:
            tokens = self.n_common + random_order(n, self.n_rare, generator=g)
            place = 2 * _rank(rare, self.n_rare // 2)
            keys = torch.where(rare, tokens.gather(1, place), keys)
            values = torch.where(rare, tokens.gather(1, place + 1), values)
        return keys, values

    # -- ceilings ---------------------------------------------------------------------------

    def ceiling(self) -> Ceiling:
        """Best accuracy and mean loss, closed for uniform pairs (see `Ceiling`).

        - both: right whenever the target is not noise.
        - context: right when the block is shown; an absent value is uniform over the common
          tokens (of the value class, if directed) that are not in the sequence.
        - weights: a common query's value is R's with probability 1 - f_v, else uniform over the
          other candidates; a rare one's is uniform over the other rare tokens.

        With Zipf frequencies the uniform guesses are not the best ones; those entries are None.
        """
        return recall_ceiling(self)


def _rank(mask: Tensor, limit: int) -> Tensor:
    """How many earlier entries of its row are set, for every entry; capped below `limit`."""
    return (mask.cumsum(1) - mask.long()).clamp(max=limit - 1)
