"""Minimal faithful circuits: by trying every subset of the edges, or between certified bounds.

A circuit is faithful when the model, with every other edge ablated, still gives the right answer
on at least `KEEPS` of the inputs that the whole model gets right, and minimal when no faithful
circuit lies inside it. There may be several, large and small: a model that knows a pair along two
paths can lose either. Subsets are walked layer by layer, so that what a layer writes is computed
once for each choice of the edges before it.

Graphs too large for that are bracketed. Every bound is a run of the model, and the labels say no
more than the runs show:

- *sufficient*: circuits found by removing edges in random orders, each faithful and no longer so
  without any one of its edges. What stands in none of them is wrong: the model can do without all
  of it at once.
- *necessary*: edges that the whole model, every other edge kept, cannot lose. Those that stand in
  every sufficient circuit, too, are right.
- What lies between the bounds is not scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from imir_detect.benchmark.graph import PatchedModel
from imir_detect.coordinates.pathsum import Edge
from imir_detect.errors import InvalidArgumentError
from imir_detect.models.planted_truth import Truth

KEEPS = 0.95
LARGEST = 14  # edges: 16,384 subsets


@dataclass(frozen=True)
class Bracket(Truth):
    """Truth between bounds. `circuits`: sufficient ones; `alone`: edges that the whole model cannot
    lose; `necessary`: those of them that stand in every circuit found."""

    alone: frozenset[Edge] = frozenset()

    @property
    def necessary(self) -> frozenset[Edge]:
        return super().necessary & self.alone


def shares_kept(model: PatchedModel, logits: Tensor) -> Tensor:
    """Share of the inputs that the whole model gets right which a circuit gets right too, for
    logits (..., n, vocab) of circuits."""
    kept = (model.right & model.prompts.right(logits)).sum(-1)
    return kept / max(1, int(model.right.sum()))


def faithful(model: PatchedModel, keep: Tensor) -> bool:
    """Whether the circuit with these edges is faithful."""
    return bool(shares_kept(model, model.run(keep)) >= KEEPS)


def minimal_circuits(model: PatchedModel) -> Truth:
    """All minimal faithful circuits; exhaustive, for at most `LARGEST` edges."""
    if len(model.edges) > LARGEST:
        raise InvalidArgumentError(
            "too many edges to try every subset",
            got=str(len(model.edges)),
            wanted=f"at most {LARGEST}",
            todo="use bracketed_circuits",
        )
    minimal: list[frozenset[int]] = []
    for chosen in sorted(_faithful_subsets(model), key=lambda c: (len(c), c)):
        candidate = frozenset(chosen)
        if not any(known <= candidate for known in minimal):
            minimal.append(candidate)
    return Truth(tuple(_named(model, chosen) for chosen in minimal))


def bracketed_circuits(model: PatchedModel, *, tries: int = 12, seed: int = 0) -> Bracket:
    """The bounds that the module's text describes, for a graph too large to try every subset.

    Edges are removed in `tries` random orders, in each again and again until no single edge can go.
    """
    generator = torch.Generator().manual_seed(seed)
    found: set[frozenset[Edge]] = set()
    with torch.no_grad():
        for _ in range(tries):
            order = torch.randperm(len(model.edges), generator=generator).tolist()
            found.add(_named(model, _irreducible(model, order)))
        alone = _named(model, (i for i in range(model.size) if not faithful(model, _but(model, i))))
    return Bracket(tuple(sorted(found, key=lambda c: (len(c), sorted(map(str, c))))), alone=alone)


def _but(model: PatchedModel, index: int) -> Tensor:
    keep = torch.ones(model.size)
    keep[index] = 0.0
    return keep


def _irreducible(model: PatchedModel, order: list[int]) -> tuple[int, ...]:
    keep = torch.ones(len(model.edges))
    while True:
        removed = False
        for index in order:
            if keep[index]:
                keep[index] = 0.0
                if faithful(model, keep):
                    removed = True
                else:
                    keep[index] = 1.0
        if not removed:
            return tuple(keep.nonzero()[:, 0].tolist())


def _named(model: PatchedModel, chosen: Iterable[int]) -> frozenset[Edge]:
    return frozenset(model.edges[i] for i in chosen)


def _faithful_subsets(model: PatchedModel) -> Iterator[tuple[int, ...]]:
    weights = model.weights

    def descend(layer: int, written: Tensor, start: int, chosen: tuple[int, ...]) -> Iterator:
        readers = 3 * weights.n_heads if layer < weights.n_layers else 1
        masks = torch.tensor(list(product((0.0, 1.0), repeat=readers * len(written))))
        if layer == weights.n_layers:
            shares = shares_kept(model, model.logits(written, masks))
            for mask in masks[shares >= KEEPS]:
                yield chosen + _kept(mask, start)
            return
        for mask in masks:
            new = model.layer(layer, written, mask)
            after = torch.cat([written, new])
            yield from descend(layer + 1, after, start + len(mask), chosen + _kept(mask, start))

    with torch.no_grad():
        yield from descend(0, model.clean[:1], 0, ())


def _kept(mask: Tensor, start: int) -> tuple[int, ...]:
    return tuple(start + i for i in mask.nonzero()[:, 0].tolist())
