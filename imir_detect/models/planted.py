"""Transformers with a circuit planted in their weights, and the exact truth about it.

The residual stream is cut into slots: `token` and `position` hold one-hot embeddings, `found` is
where feeders write, `junk` is read by nothing, `logit` is what the unembedding reads. A *job* is
what one head does: it scores where the index in its query slot, less `back`, equals the index in
its key slot, and moves one slot to another. A seeded orthonormal basis, at right angles to the
all-ones vector so that LayerNorm's centring changes nothing, carries the slots into the model's
width; every head is turned inside, so that no weight shows the plan by eye.

Truth is a matter of the ablation: what a source brings under mean or resample ablation is only
what varies with the tokens, so edges that carry positions alone are part of a circuit under zero
ablation and of none otherwise (`imir_detect.models.planted_truth`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from imir_detect._typing import HeadIndex
from imir_detect.errors import InvalidArgumentError
from imir_detect.weights.native import ModelSpec, Norm

if TYPE_CHECKING:
    from transformer_lens import TransformerBridge

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
    "none",
]
KINDS: tuple[PlantKind, ...] = PlantKind.__args__  # type: ignore[attr-defined]
FED: tuple[PlantKind, ...] = (  # kinds made of a feeder and the head that reads it
    "induction",
    "pointer_induction",
    "skip",
    "prefix_match",
    "suppression",
)
Slot = Literal["token", "position", "found", "junk", "logit"]


@dataclass(frozen=True)
class PlantedSpec:
    """What to plant, and how hard to make it.

    - `kind`: one of `KINDS`. `in_weights` writes R (tokens 2i and 2i + 1 are partners) along the
      direct path, or with `by_head` through a head that attends to its own place.
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
        yield self.head_width < self.side, f"d_head of at least {self.side}"
        fed = self.kind in FED
        last = self.reader_layer % max(1, self.layers)
        yield fed and not 0 <= self.feeder_layer < last, "a feeder's layer before its reader's"
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
            needed[self.feeder_layer] = 1 if self.feeders == "one" else 2
        return needed

    @property
    def side(self) -> int:
        """Size of the slots that hold an index: the larger of vocabulary and context."""
        return max(self.vocab, self.context)

    @property
    def slot_count(self) -> int:
        return 2 * self.vocab + self.context + 2 * self.side

    @property
    def width(self) -> int:
        """d_model; one more than the slots need, for the all-ones direction."""
        return self.d_model or self.slot_count + 1

    @property
    def head_width(self) -> int:
        return self.d_head or self.side

    def slots(self) -> dict[Slot, slice]:
        """Where each slot lies in the planted basis."""
        sizes: dict[Slot, int] = {
            "token": self.vocab,
            "position": self.context,
            "found": self.side,
            "junk": self.side,
            "logit": self.vocab,
        }
        found, start = {}, 0
        for name, size in sizes.items():
            found[name] = slice(start, start + size)
            start += size
        return found


@dataclass(frozen=True)
class Job:
    """What one head does. `role`: heads of one role do the same work, redundantly; `part`: the
    query places it works at, 0 even, 1 odd, None all. `only`: query indices it answers to."""

    head: HeadIndex
    role: str
    query: Slot
    key: Slot
    value: Slot
    target: Slot
    back: int = 0
    gain: float = 1.0
    part: int | None = None
    only: int | None = None
    partner: bool = False  # writes the partner of what it reads
    first: bool = False  # looks at place 0 from everywhere


REFERENCE = Job((0, 0), "reader", "token", "found", "token", "logit")


def jobs(spec: PlantedSpec) -> tuple[Job, ...]:
    """Every head's job: the circuit's, then the distractors'."""
    places = _Places(spec)
    made = [*_feeders(spec, places), *_readers(spec, places)]
    return (*made, *_distractors(spec, places))


class _Places:
    """Hands out heads of a layer in a seeded order."""

    def __init__(self, spec: PlantedSpec) -> None:
        generator = torch.Generator().manual_seed(spec.seed)
        self.free = {
            layer: torch.randperm(spec.heads, generator=generator).tolist()
            for layer in range(spec.layers)
        }

    def take(self, layer: int) -> HeadIndex:
        return (layer, self.free[layer].pop())


def _feeders(spec: PlantedSpec, places: _Places) -> Iterator[Job]:
    if spec.kind not in FED:
        return
    back = spec.back if spec.kind == "skip" else 1
    template = Job((0, 0), "feeder", "position", "position", "token", "found", back)
    if spec.kind == "pointer_induction":
        template = Job((0, 0), "feeder", "token", "token", "position", "found")
    parts = {"one": (None,), "split": (0, 1), "redundant": (None, None)}[spec.feeders]
    for part in parts:
        role = template.role if part is None else f"feeder {part}"
        head = places.take(spec.feeder_layer)
        yield replace(template, head=head, part=part, role=role)


def _readers(spec: PlantedSpec, places: _Places) -> Iterator[Job]:
    layer = spec.reader_layer % spec.layers
    look = {
        "induction": Job((0, 0), "reader", "token", "found", "token", "logit"),
        "pointer_induction": Job((0, 0), "reader", "found", "position", "token", "logit", -1),
        "previous_token": Job((0, 0), "reader", "position", "position", "token", "logit", 1),
        "offset": Job((0, 0), "reader", "position", "position", "token", "logit", spec.back),
        "duplicate_token": Job((0, 0), "reader", "token", "token", "token", "logit"),
        "position_sink": Job((0, 0), "reader", "position", "position", "token", "logit"),
    }
    look["skip"] = look["induction"]
    look["suppression"] = replace(look["induction"], gain=-1.0)
    look["prefix_match"] = replace(look["induction"], target="junk")
    look["position_sink"] = replace(look["position_sink"], first=True)
    look["in_weights"] = replace(look["offset"], back=0, partner=True)
    if spec.kind == "none" or (spec.kind == "in_weights" and not spec.by_head):
        return
    for _ in range(spec.readers):
        job = look[spec.kind]
        yield replace(job, head=places.take(layer), gain=spec.gain * job.gain, only=spec.triggers)


def _distractors(spec: PlantedSpec, places: _Places) -> Iterator[Job]:
    idle = Job((0, 0), "distractor", "position", "position", "token", "junk", 1, 2.0)
    kinds = (
        idle,
        replace(idle, query="token", key="found", back=0),
        replace(idle, query="token", key="token", back=0),
        replace(idle, back=2),
    )
    made = 0
    while made < spec.distractors:
        for layer in range(spec.layers):
            if made < spec.distractors and places.free[layer]:
                kind = kinds[(made + layer) % len(kinds)]
                yield replace(kind, head=places.take(layer))
                made += 1


def relation_of(spec: PlantedSpec) -> Tensor:
    """R as planted: tokens 2i and 2i + 1 are partners; an odd last token has none (-1)."""
    partner = torch.arange(spec.vocab) ^ 1
    partner[partner >= spec.vocab] = -1
    return partner


@torch.no_grad()
def build(spec: PlantedSpec) -> TransformerBridge:
    """The native bridge with the jobs of `spec` in its weights.

    Scores lead by `sharpness` nats where nothing is normalised; behind a norm they are scaled for
    the residual of the first layer and shrink by at most half later on.
    """
    shape = ModelSpec(
        spec.vocab,
        spec.context,
        n_layers=spec.layers,
        n_heads=spec.heads,
        d_model=spec.width,
        d_head=spec.head_width,
        norm=spec.norm,
    )
    model = shape.boot(seed=spec.seed)
    generator = torch.Generator().manual_seed(spec.seed + 1)
    basis = _basis(spec, generator)
    slots = spec.slots()
    factor = math.sqrt(spec.width / 2) if spec.norm else 1.0  # the norm's, at the embedding
    for name, parameter in model.original_model.named_parameters():
        if "ln" not in name:
            parameter.zero_()
    model.embed.weight.copy_(basis[slots["token"]])
    model.pos_embed.weight.copy_(basis[slots["position"]])
    unembed = basis[slots["logit"]].clone()
    if spec.kind == "in_weights" and not spec.by_head:
        partner = relation_of(spec)
        named = partner >= 0
        unembed[partner[named]] += spec.gain * basis[slots["token"]][named]
    model.unembed.weight.copy_(unembed / factor)
    weights = torch.zeros(spec.layers, 4, spec.heads, spec.width, spec.head_width)
    for job in jobs(spec):
        for letter, matrix in enumerate(_job_matrices(spec, job, basis, slots, factor)):
            weights[job.head[0], letter, job.head[1]] = matrix
    reference = torch.stack(_job_matrices(spec, REFERENCE, basis, slots, factor))
    weights += _noise(spec, weights, reference, generator)
    weights[:, :2] = weights[:, :2] @ _turns(spec, generator)
    weights[:, 2:] = weights[:, 2:] @ _turns(spec, generator)
    for layer in range(spec.layers):
        attention = model.blocks[layer].attn
        for letter, linear in enumerate((attention.q, attention.k, attention.v)):
            linear.weight.copy_(weights[layer, letter].transpose(1, 2).flatten(0, 1))
        attention.o.weight.copy_(weights[layer, 3].transpose(0, 1).flatten(1))
    return model.eval()


def _basis(spec: PlantedSpec, generator: torch.Generator) -> Tensor:
    """Orthonormal rows, one a slot entry, all at right angles to the all-ones vector."""
    drawn = torch.randn(spec.width, spec.slot_count, generator=generator, dtype=torch.float64)
    drawn = torch.cat([drawn.new_ones(spec.width, 1), drawn], dim=1)
    return torch.linalg.qr(drawn).Q[:, 1:].T.float()


def _job_matrices(
    spec: PlantedSpec, job: Job, basis: Tensor, slots: dict[Slot, slice], factor: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W_Q, W_K, W_V and the transpose of W_O, each (d_model, d_head)."""

    def place(pairs: Iterator[tuple[int, int]] | zip, slot: Slot, scale: float) -> Tensor:
        matrix = torch.zeros(spec.width, spec.head_width)
        for row, column in pairs:
            matrix[:, column] += scale * basis[slots[slot]][row]
        return matrix

    n_query = slots[job.query].stop - slots[job.query].start
    n_key = slots[job.key].stop - slots[job.key].start
    asked = [
        (i, 0 if job.first else i - job.back)
        for i in range(n_query if job.only is None or job.query != "token" else job.only)
        if (job.part is None or i % 2 == job.part) and (job.first or 0 <= i - job.back < n_key)
    ]
    moved = slots[job.value].stop - slots[job.value].start
    to = relation_of(spec).tolist() if job.partner else list(range(moved))
    sharp = spec.sharpness * math.sqrt(spec.head_width) / factor**2
    return (
        place(iter(asked), job.query, sharp),
        place(zip(range(n_key), range(n_key), strict=True), job.key, 1.0),
        place(zip(range(moved), range(moved), strict=True), job.value, 1.0 / factor),
        place(((t, i) for i, t in enumerate(to) if t >= 0), job.target, job.gain),
    )


def _noise(
    spec: PlantedSpec, weights: Tensor, reference: Tensor, generator: torch.Generator
) -> Tensor:
    """Gaussian noise on every head, each matrix of the norm `noise` x the planted ones' mean (where
    nothing is planted: that of `reference`)."""
    drawn = torch.randn(weights.shape, generator=generator)
    norms = weights.flatten(3).norm(dim=3)  # (layer, letter, head)
    planted = norms > 0
    typical = (norms * planted).sum((0, 2)) / planted.sum((0, 2)).clamp(min=1)
    typical = torch.where(planted.any(2).any(0), typical, reference.flatten(1).norm(dim=1))
    unit = drawn / drawn.flatten(3).norm(dim=3)[..., None, None]
    return spec.noise * typical[None, :, None, None, None] * unit


def _turns(spec: PlantedSpec, generator: torch.Generator) -> Tensor:
    """One random rotation of the head's own space a head: (layer, 1, head, d_head, d_head)."""
    size = spec.head_width
    drawn = torch.randn(spec.layers, 1, spec.heads, size, size, generator=generator)
    return torch.linalg.qr(drawn).Q
