"""Coordinates over a training run: four numbers, read from the weights every few steps.

Call the tracker once a step of any training loop of any model that `read_weights` reads:

    tracker = CoordinateTracker(model, relation=task.relation)
    for step in range(steps):
        ...
        tracker(step)

Each number is the largest over the heads that could play the part, in nats (imir_detect's effects:
mean on the selection minus mean off it): alpha, a head attends one back; beta, a head matches its
query with the key read through an earlier head; gamma, a head copies what it attends to; delta, R
on the direct path or through a head.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import HeadIndex, Int
from imir_detect.coordinates.effects import read_selection, read_shift
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.errors import ImirError, InvalidArgumentError
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.read import read_weights

NAMES = ("alpha", "beta", "gamma", "delta")
CONTEXTS = 4  # random contexts on which the norms' typical factors are read
MOST = 512  # tokens read; a larger vocabulary is sampled once


def four_coordinates(
    weights: ModelWeights,
    *,
    relation: Int[Tensor, " vocab"] | None = None,
    context: int = 32,
    seed: int = 0,
) -> dict[str, float]:
    """alpha, beta, gamma, delta of a model now; delta is 0 without a relation.

    `context`: positions read for alpha, at most the model's own. Norms count by their mean factor
    on random contexts.
    """
    g = torch.Generator().manual_seed(seed)
    vocab, length = weights.vocab_size, min(context, weights.n_ctx)
    if length < 2:
        raise InvalidArgumentError(
            "one position has nothing before it",
            got=f"context={length}",
            wanted="at least 2",
            todo="read a model with more positions",
        )
    norm = [1.0] * (weights.n_layers + 1)
    if weights.rms:
        tokens = torch.randint(vocab, (CONTEXTS, length), generator=g)
        norm = [float(f.mean()) for f in sum_paths(weights, tokens).inverse_rms]
    kept = torch.arange(vocab)
    if vocab > MOST:
        kept = torch.randperm(vocab, generator=g)[:MOST].sort().values
    partner = _partners(relation, kept, vocab)
    x, places = weights.W_E[kept], weights.W_pos[:length]
    out = weights.W_U.T[kept] if weights.same_vocabulary else None
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    carried: dict[HeadIndex, Tensor] = {}
    for layer, head in weights.heads:
        f = norm[layer]
        query = weights.W_Q[layer, head] / weights.scale[layer]
        key = weights.W_K[layer, head]
        shifted = f * places @ query + weights.b_Q[layer, head] / weights.scale[layer]
        found["alpha"].append(read_shift(shifted @ (f * places @ key).T, 1).effect)
        for (earlier, _), rows in carried.items():
            if earlier < layer:
                match = read_selection(f * x @ query, f * rows @ key)
                found["beta"].append(match.effect)
        through = f * (x @ weights.W_V[layer, head]) @ weights.W_O[layer, head]
        carried[layer, head] = through
        if out is not None:
            found["gamma"].append(read_selection(norm[-1] * through, out).effect)
    if out is not None and partner is not None:
        for rows in (x, *carried.values()):
            found["delta"].append(read_selection(norm[-1] * rows, out, partner).effect)
    return {name: max(values, default=0.0) for name, values in found.items()}


def _partners(relation: Tensor | None, kept: Tensor, vocab: int) -> Tensor | None:
    if relation is None:
        return None
    if relation.shape != (vocab,):
        raise InvalidArgumentError(
            "the relation does not fit the model",
            got=str(tuple(relation.shape)),
            wanted=str((vocab,)),
            todo="give a partner, or -1, for every token",
        )
    place = torch.full((vocab + 1,), -1)
    place[kept] = torch.arange(len(kept))
    return place[relation[kept]]


@dataclass
class CoordinateTracker:
    """Records `four_coordinates` of `model` every `every` steps into `history`.

    A row holds "step" and the four numbers, and what the call adds (a loss, say). A loop that is
    resumed may pass the `history` that it saved: rows of steps that are taken again are replaced.
    """

    model: Any
    relation: Int[Tensor, " vocab"] | None = None
    every: int = 50
    context: int = 32
    history: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InvalidArgumentError(
                "a tracker records every so many steps",
                got=f"every={self.every}",
                wanted="at least 1",
                todo="use 50",
            )

    def __call__(self, step: int, **also: float) -> bool:
        """Record where the step asks for it; says whether it did."""
        if step % self.every:
            return False
        with torch.no_grad():
            weights = read_weights(self.model)
            now = four_coordinates(weights, relation=self.relation, context=self.context)
        while self.history and self.history[-1]["step"] >= step:
            self.history.pop()
        self.history.append({"step": float(step), **also, **now})
        return True

    def plot(self, axes: Any = None) -> Any:
        """alpha, beta, gamma and delta against steps, on matplotlib axes (new ones by default)."""
        if axes is None:
            try:
                from matplotlib.figure import Figure
            except ImportError as error:
                raise ImirError(
                    "plots need matplotlib",
                    got="no matplotlib",
                    wanted="the extra 'report'",
                    todo="pip install 'imir-detect[report]'",
                ) from error
            axes = Figure(figsize=(6, 4)).subplots()
        steps = [row["step"] for row in self.history]
        for name in NAMES:
            axes.plot(steps, [row[name] for row in self.history], label=name)
        axes.set(xlabel="step", ylabel="effect (nats)")
        axes.legend()
        return axes
