"""What to plant: the kind of circuit, the size of the model, and how hard it is to find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from imir_detect.errors import InvalidArgumentError
from imir_detect.weights.native import Norm

PlantKind = Literal[
    "induction",
    "pointer_induction",
    "skip",
    "previous_token",
    "offset",
    "duplicate_token",
    "in_weights",
    "prefix_match",
    "suppression",
    "position_sink",
    "induction_long_prefix",
    "k_hop",
    "backward_retrieval",
    "none",
]
KINDS: tuple[PlantKind, ...] = PlantKind.__args__  # type: ignore[attr-defined]
FED: tuple[PlantKind, ...] = (  # kinds made of a feeder and the head that reads it
    "induction",
    "pointer_induction",
    "skip",
    "prefix_match",
    "suppression",
    "induction_long_prefix",
    "k_hop",
    "backward_retrieval",
)
OF_ONE = FED[-3:]  # fed kinds whose feeders have no twin and no triggers
CARRIED: tuple[PlantKind, ...] = ("induction_long_prefix", "k_hop")  # with a second slot to find
TWO_TERMS: tuple[PlantKind, ...] = ("induction_long_prefix", "backward_retrieval")
Slot = Literal["token", "position", "found", "junk", "logit", "carried"]


@dataclass(frozen=True)
class PlantedSpec:
    """What to plant, and how hard to make it.

    - `kind`: one of `KINDS`. `in_weights` writes R (tokens 2i and 2i + 1 are partners) along the
      direct path, or with `by_head` through a head that attends to its own place. `k_hop` is two
      hops over blocks of two, which start at even places: its feeder works at odd places alone.
    - `layers`, `heads`, `d_model` (default: the fewest that the slots need), `d_head` (default: the
      larger of vocabulary and context), `norm`: of the model.
    - `vocab`, `context`: tokens and positions; a sequence fills the context with different tokens.
    - `feeder_layer`, `reader_layer`: defaults 0 and the last. `back`: how far `skip` and `offset`
      look.
    - `feeders`: "one"; "split" (even and odd places); "redundant" (two that do the same).
      `readers`: how many heads do the reader's job, each by itself enough; 1 or 2.
    - `triggers`: the circuit answers for that many tokens only (None: all).
    - `distractors`: heads that attend like parts of a circuit and write where nothing reads.
    - `sharpness`: nats by which the right place leads. `gain`: of the last write.
    - `noise`: Frobenius norm of noise on every head's weights, as a share of the planted ones'.
    """

    kind: PlantKind = "induction"
    layers: int = 2
    heads: int = 2
    d_model: int | None = None
    d_head: int | None = None
    vocab: int = 14
    context: int = 12
    norm: Norm | None = None
    feeder_layer: int = 0
    reader_layer: int = -1
    back: int = 2
    by_head: bool = False
    feeders: Literal["one", "split", "redundant"] = "one"
    readers: int = 1
    triggers: int | None = None
    distractors: int = 0
    sharpness: float = 16.0
    gain: float = 4.0
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        wrong = [text for broken, text in self._rules() if broken]
        if wrong:
            raise InvalidArgumentError(
                "this circuit cannot be planted",
                got=f"{self}",
                wanted="; ".join(wrong),
                todo="mend the specification",
            )

    def _rules(self) -> Iterator[tuple[bool, str]]:
        yield self.kind not in KINDS, f"a kind among {', '.join(KINDS)}"
        yield self.layers < 1 or self.heads < 1, "at least one layer and one head"
        yield not 7 <= self.context <= self.vocab, "7 <= context <= vocab"
        yield self.width <= self.slot_count, f"d_model above {self.slot_count}, what the slots need"
        least = self.side * self._terms
        yield self.head_width < least, f"d_head of at least {least}"
        fed = self.kind in FED
        last = self.reader_layer % max(1, self.layers)
        yield fed and not 0 <= self.feeder_layer < last, "a feeder's layer before its reader's"
        hop = self.kind == "k_hop"
        yield hop and last < self.feeder_layer + 2, "a layer between a feeder's and its reader's"
        single = self.kind in OF_ONE
        yield single and self.feeders != "one", f"one feeder for {', '.join(OF_ONE)}"
        yield single and self.triggers is not None, f"no triggers for {', '.join(OF_ONE)}"
        long = self.kind == "induction_long_prefix"
        yield long and self.context < 9, "context of at least 9 for a longer prefix"
        yield not fed and self.feeders != "one", f"feeders only for {', '.join(FED)}"
        yield not 1 <= self.back <= self.context - 4, "1 <= back <= context - 4"
        yield self.triggers is not None and not 2 <= self.triggers <= self.vocab, "2+ triggers"
        yield self.triggers is not None and not fed, f"triggers only for {', '.join(FED)}"
        yield self.kind == "in_weights" and self.context == self.vocab, "context < vocab"
        yield self.by_head and self.kind != "in_weights", "by_head for in_weights only"
        needed = self._heads_needed()
        yield max(needed.values(), default=0) > self.heads, f"heads for {needed} a layer"
        room = self.layers * self.heads - sum(needed.values())
        yield self.distractors > room, f"at most {room} distractors"
        yield self.readers not in (1, 2), "one or two readers"
        yield self.sharpness <= 0 or self.noise < 0, "a positive sharpness, noise of at least 0"

    def _heads_needed(self) -> dict[int, int]:
        """Heads with a job, by layer."""
        layer = self.reader_layer % max(1, self.layers)
        if self.kind == "none" or (self.kind == "in_weights" and not self.by_head):
            return {}
        needed = {layer: self.readers}
        if self.kind in FED:
            both = self.feeders != "one" or self.kind == "induction_long_prefix"
            needed[self.feeder_layer] = 2 if both else 1
        if self.kind == "k_hop":
            needed[self.hop_layer] = 1
        return needed

    @property
    def side(self) -> int:
        """Size of the slots that hold an index: the larger of vocabulary and context."""
        return max(self.vocab, self.context)

    @property
    def slot_count(self) -> int:
        return 2 * self.vocab + self.context + (2 + (self.kind in CARRIED)) * self.side

    @property
    def hop_layer(self) -> int:
        """Where the first of two hops is made."""
        return self.feeder_layer + 1

    @property
    def _terms(self) -> int:
        """Parts of a reader's score, each with columns of its own."""
        return 1 + (self.kind in TWO_TERMS)

    @property
    def width(self) -> int:
        """d_model; one more than the slots need, for the all-ones direction."""
        return self.d_model or self.slot_count + 1

    @property
    def head_width(self) -> int:
        return self.d_head or self.side * self._terms

    def slots(self) -> dict[Slot, slice]:
        """Where each slot lies in the planted basis."""
        sizes: dict[Slot, int] = {
            "token": self.vocab,
            "position": self.context,
            "found": self.side,
            "junk": self.side,
            "logit": self.vocab,
        }
        if self.kind in CARRIED:
            sizes["carried"] = self.side
        found, start = {}, 0
        for name, size in sizes.items():
            found[name] = slice(start, start + size)
            start += size
        return found


def relation_of(spec: PlantedSpec) -> Tensor:
    """R as planted: tokens 2i and 2i + 1 are partners; an odd last token has none (-1)."""
    partner = torch.arange(spec.vocab) ^ 1
    partner[partner >= spec.vocab] = -1
    return partner
