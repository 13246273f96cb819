"""Permutation inversion: blocks [x pi(x)], then y; the answer is the x with pi(x) = y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.tasks.base import Batch
from imir_detect.tasks.blocks import Offsets, place_unlike_blocks, random_order
from imir_detect.tasks.checks import (
    Rule,
    at_least,
    enough_rare,
    one_of,
    placed_blocks,
    placed_query,
    require,
    right_types,
    shares,
)
from imir_detect.tasks.family import BlockTask, ask_last, last_place, point_mass
from imir_detect.tasks.labels import LOGITS, Edge, ExpectedCircuit, ExpectedUnit, at_places

Structure = Literal["cycle", "permutation"]
STRUCTURES: tuple[Structure, ...] = ("cycle", "permutation")


@dataclass(frozen=True)
class PermutationInversion(BlockTask):
    """Blocks [x pi(x)], then y; the answer is the x with pi(x) = y.

    The query stands in the context twice, as a value and as a key (once as both, at a fixed
    point): a model must tell the two places of a block apart.

    - `structure`: "cycle": pi is one cycle through all items, so no fixed point; "permutation":
      any permutation.
    - `burstiness`: how often the block that ends in the query stands in the context.
    - `n_blocks`, `n_rare`, `label_noise`, `offsets`, `positions`, `query_never_first`: as in
      recall.

    >>> PermutationInversion(n_blocks=4).length
    9
    """

    n_blocks: int = 8
    n_rare: int = 32
    structure: Structure = "cycle"
    burstiness: int = 1
    label_noise: float = 0.0
    offsets: Offsets = "consecutive"
    positions: int | None = None
    query_never_first: bool = False

    name = "inversion"

    def __post_init__(self) -> None:
        require(self.name, right_types(self))
        require(self.name, at_least(self, n_blocks=1))
        require(
            self.name,
            [
                one_of(self, "structure", STRUCTURES),
                placed_query(self),
                Rule(
                    self.items >= 2,
                    f"{self.items} different blocks (n_blocks less repeats)",
                    "at least 2",
                    "raise n_blocks or lower burstiness",
                ),
                enough_rare(self, self.items, "one for every item"),
                *shares(self, "label_noise"),
                *placed_blocks(self),
            ],
        )

    @property
    def items(self) -> int:
        """Different blocks, and items of the permutation."""
        return self.n_blocks - self.burstiness + 1

    @property
    def block_lengths(self) -> tuple[int, ...]:
        return (*[2] * self.n_blocks, 1)

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        circuit = backward_retrieval()
        if self.offsets == "consecutive":
            circuit = at_places(circuit, "the value's place", ["same token"])
        return (circuit,)

    def draw(self, n: int, *, generator: torch.Generator) -> Batch:
        return self.pairs(n, generator=generator)[0]

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """Clean sequences, and the same ones asked for the preimage of another item."""
        g, m = generator, self.items
        keys = random_order(n, self.n_rare, generator=g)[:, :m] + self.n_fixed
        if self.structure == "cycle":
            values = keys.roll(-1, dims=1)
        else:
            values = keys.gather(1, random_order(n, m, generator=g))
        block = place_unlike_blocks(
            n, self.n_blocks, self.burstiness, never_first=self.query_never_first, generator=g
        )
        context = torch.stack([keys.gather(1, block), values.gather(1, block)], dim=-1)
        places = self.place(n, generator=g)
        clean, corrupt = (
            ask_last(
                torch.cat([context.flatten(1), values[:, i : i + 1]], dim=1),
                keys[:, i],
                last_place(context[..., 0], keys[:, i], 2, 0),
                places,
            )
            for i in (0, 1)
        )
        return clean, corrupt

    def last_law(self, batch: Batch) -> Float[Tensor, "n vocab"]:
        context, query = batch.tokens[:, :-1], batch.tokens[:, -1]
        end = last_place(context[:, 1::2], query, 2, 1)
        answer = context.gather(1, (end - 1).clamp(min=0)[:, None])[:, 0]
        return point_mass(answer, self.vocab_size)


def backward_retrieval() -> ExpectedCircuit:
    """Attend to the query's token where it is a value, and copy what stood before it.

    The key's token reaches the value's place through a shift of stage 0, read as value. The query
    also stands where it is a key; with consecutive positions, the places tell the two apart.
    """
    units = (
        ExpectedUnit("1 back", "shift", 0, 1),
        ExpectedUnit("same token", "match", 1),
        ExpectedUnit("copy", "copy", 1),
    )
    edges: tuple[Edge, ...] = (
        ("1 back", "copy", "V"),
        ("same token", "copy", "V"),
        ("copy", LOGITS, "out"),
    )
    return ExpectedCircuit("backward_retrieval", units, edges)
