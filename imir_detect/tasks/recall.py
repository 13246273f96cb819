"""Associative recall: key-value blocks, then a key; the answer is its value (k = 2).

A sequence is n blocks [key value] and a query key: T = 2n + 1 tokens. Common tokens are paired by
the fixed relation R; rare ones get a fresh partner in every sequence. All blocks of one sequence
use different tokens, so that the answer in context is unambiguous.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks.base import IGNORE, Axis, Batch, Ceiling
from imir_detect.tasks.blocks import (
    OFFSETS,
    Offsets,
    place_query,
    prefer_zipf,
    random_order,
    sample_positions,
)
from imir_detect.tasks.ceilings import recall_ceiling


@dataclass(frozen=True)
class AssociativeRecall:
    """Associative recall with every knob of imir.md section 1 that applies to it.

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
        _check(self)

    name = "recall"

    @property
    def vocab_size(self) -> int:
        return self.n_common + self.n_rare

    @property
    def length(self) -> int:
        return 2 * self.n_blocks + 1

    @property
    def n_positions(self) -> int:
        if self.offsets == "consecutive":
            return self.length
        return self.positions or 4 * self.n_blocks + 4

    @property
    def competitors(self) -> int:
        return self.length

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

    # -- sampling ---------------------------------------------------------------------------

    def sample(self, n: int, *, generator: torch.Generator) -> Batch:
        """`n` sequences by the task's law. Only the last position is asked."""
        g = generator
        rare = torch.rand(n, self.slots, generator=g) < self.rare_frequency
        fresh = torch.rand(n, self.slots, generator=g) < self.variability
        made_here = rare[:, 0] | fresh[:, 0]
        shown = made_here | (torch.rand(n, generator=g) < self.present)
        batch, _, _ = self._assemble(rare, fresh, shown, generator=g)
        noisy = torch.rand(n, generator=g) < self.label_noise
        uniform = torch.randint(self.vocab_size, (n,), generator=g)
        batch.targets[:, -1] = torch.where(noisy, uniform, batch.targets[:, -1])
        return batch

    def probe(self, axis: Axis, n: int, *, generator: torch.Generator) -> Batch | None:
        """`icl`: the query's association is fresh and shown; `iwl`: it is R's and absent.

        Fresh queries are rare or common in the proportion in which the task makes fresh
        associations of them, f_r : (1 - f_r) f_v; where it makes none, common with a value that
        is not R's. Other blocks follow the task's law; where common tokens run out, fillers of
        the `iwl` probe keep R's value.
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
        return self._assemble(rare, fresh, torch.full((n,), axis == "icl"), generator=g)[0]

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """Clean sequences, and the same ones asked for another block's key.

        Only the last token and its target differ; each is a sequence of the task itself, with
        its answer in context.
        """
        if self.n_blocks - self.burstiness < 1:
            raise InvalidArgumentError(
                "a corrupt sequence asks for another block",
                got=f"n_blocks={self.n_blocks}, burstiness={self.burstiness}",
                wanted="at least one block that is not the query's",
                todo="raise n_blocks or lower burstiness",
            )
        g = generator
        rare = torch.rand(n, self.slots, generator=g) < self.rare_frequency
        fresh = torch.rand(n, self.slots, generator=g) < self.variability
        shown = torch.ones(n, dtype=torch.bool)
        clean, keys, values = self._assemble(rare, fresh, shown, generator=g)
        tokens, targets, answer = (
            t.clone() for t in (clean.tokens, clean.targets, clean.answer_position)
        )
        tokens[:, -1], targets[:, -1] = keys[:, 1], values[:, 1]
        answer[:, -1] = _last_place_of(tokens[:, 1:-1:2], values[:, 1])
        return clean, Batch(tokens, targets, answer, clean.positions)

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
        context = torch.stack([keys.gather(1, block), values.gather(1, block)], dim=-1)
        tokens = torch.cat([context.flatten(1), keys[:, :1]], dim=1)
        targets = torch.full_like(tokens, IGNORE)
        targets[:, -1] = values[:, 0]
        answer = torch.full_like(tokens, -1)
        answer[:, -1] = _last_place_of(context[..., 1], values[:, 0])
        positions = sample_positions(
            n, [2] * self.n_blocks + [1], self.n_positions, self.offsets, generator=g
        )
        return Batch(tokens, targets, answer, positions), keys, values

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


def _last_place_of(values: Tensor, wanted: Tensor) -> Tensor:
    """Sequence index of the last block's value that is `wanted`, -1 where there is none."""
    places = torch.arange(1, values.shape[1] + 1)
    return 2 * ((values == wanted[:, None]) * places).max(1).values - 1


def _check(task: AssociativeRecall) -> None:
    """Raise on the knobs that do not fit together."""
    rules: list[tuple[bool, str, str, str]] = [
        (task.n_blocks >= 1, f"n_blocks={task.n_blocks}", "at least 1", "raise n_blocks"),
        (
            1 <= task.burstiness <= task.n_blocks - task.query_never_first,
            f"burstiness={task.burstiness} with {task.n_blocks} blocks",
            "1 .. n_blocks (one fewer with query_never_first)",
            "lower burstiness or raise n_blocks",
        ),
        (task.zipf >= 0, f"zipf={task.zipf}", "at least 0", "use 0 for uniform tokens"),
        (
            task.offsets in OFFSETS,
            f"offsets={task.offsets!r}",
            ", ".join(OFFSETS),
            "use one of these",
        ),
        (
            task.n_common % 2 == 0 and task.n_common >= 0,
            f"n_common={task.n_common}",
            "an even number: common tokens come in pairs",
            "add or drop one common token",
        ),
    ]
    for name in ("rare_frequency", "variability", "present", "label_noise"):
        value = getattr(task, name)
        rules.append((0 <= value <= 1, f"{name}={value}", "a value in [0, 1]", f"mend {name}"))
    if task.rare_frequency < 1:
        rules.append(
            (
                task.n_pairs > task.n_blocks,
                f"n_common={task.n_common} with {task.n_blocks} blocks",
                f"at least {2 * task.n_blocks + 2} common tokens: every block its own pair, "
                "and one for a query that is absent",
                "raise n_common, lower n_blocks or set rare_frequency=1",
            )
        )
        spare = (task.n_pairs - task.slots) * (1 if task.directed else 2)
        rules.append(
            (
                task.variability == 0 or spare >= task.n_blocks,
                f"n_common={task.n_common} with variability={task.variability}",
                f"{task.n_blocks} common tokens whose pair no block uses, got {spare}",
                "raise n_common, lower n_blocks or set variability=0",
            )
        )
    if task.rare_frequency > 0:
        rules.append(
            (
                task.n_rare >= max(2 * task.n_blocks, 3),
                f"n_rare={task.n_rare} with {task.n_blocks} blocks",
                f"at least {max(2 * task.n_blocks, 3)} rare tokens: two for every block",
                "raise n_rare, lower n_blocks or set rare_frequency=0",
            )
        )
    if task.offsets != "consecutive":
        need = 2 * (task.n_blocks + 1) if task.offsets == "disjoint" else 2
        rules.append(
            (
                task.n_positions >= need,
                f"positions={task.positions} with offsets={task.offsets!r}",
                f"at least {need}",
                "raise positions",
            )
        )
    elif task.positions is not None:
        rules.append(
            (
                False,
                f"positions={task.positions} with consecutive offsets",
                "no positions: they are 0 .. 2 n_blocks",
                "drop positions, or choose other offsets",
            )
        )
    for holds, got, wanted, todo in rules:
        if not holds:
            raise InvalidArgumentError(
                "these knobs of recall do not fit", got=got, wanted=wanted, todo=todo
            )
