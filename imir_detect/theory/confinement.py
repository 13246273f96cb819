"""Theorem 1: weights in the span of the basis have a population gradient in the span.

The measure is the share of the gradient's squared norm outside the span: zero to round-off where
every sequence is enumerated, falling as 1/N where N sequences are sampled, and levelling off where
a symmetry is broken or an ingredient of the span is missing. (The paper, section 4.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.basis import Coefficients, Frame
from imir_detect.models.idealised import IdealisedModel, from_coefficients
from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory.enumeration import Enumerated

Gradient = tuple[tuple[Tensor, ...], Tensor]
CHUNK = 4096  # sequences of one backward pass


def random_point(
    model: IdealisedModel, frame: Frame, *, scale: float = 0.5, seed: int = 0
) -> IdealisedModel:
    """A model in the span: N(0, scale^2) on every direction, three times that on the output."""
    g = torch.Generator().manual_seed(seed)
    shape = frame.project(model.attention, model.output)
    kind = model.output.dtype

    def draw(like: Tensor, scale: float) -> Tensor:
        return scale * torch.randn(like.shape, generator=g, dtype=torch.float64).to(kind)

    attention = tuple(draw(a, scale) for a in shape.attention)
    return from_coefficients(model, frame, Coefficients(attention, draw(shape.output, 3 * scale)))


def population_gradient(model: IdealisedModel, data: Enumerated) -> Gradient:
    """Gradient of sum_n weight_n * cross-entropy_n (nats) at the last position."""
    leaves = [w.detach().clone().requires_grad_() for w in model.parameters()]
    live = model.with_weights(tuple(leaves[:-1]), leaves[-1])
    for rows in torch.split(torch.arange(len(data.weight)), CHUNK):
        logits = live.logits(data.tokens[rows], data.positions[rows])
        loss = torch.nn.functional.cross_entropy(logits, data.answer[rows], reduction="none")
        (loss * data.weight[rows].to(loss.dtype)).sum().backward()  # type: ignore[no-untyped-call]
    grads = [torch.zeros_like(w) if w.grad is None else w.grad for w in leaves]
    return tuple(grads[:-1]), grads[-1]


def outside_share(frame: Frame, gradient: Gradient) -> float:
    """Squared norm of the gradient outside the span over its squared norm, in [0, 1]."""
    rest, rest_output = frame.outside(*gradient)
    total = sum(float(w.square().sum()) for w in (*gradient[0], gradient[1]))
    if total == 0:
        raise InvalidArgumentError(
            "the gradient is zero, so it has no share outside the span",
            got="a model at a stationary point",
            wanted="a point with a gradient",
            todo="use random_point",
        )
    return sum(float(w.square().sum()) for w in (*rest, rest_output)) / total


def sample_rotated(
    task: AssociativeRecall, n: int, *, n_positions: int, rotate: bool = True, seed: int
) -> Enumerated:
    """n sequences of equal weight, each at one uniform offset modulo `n_positions`.

    With `rotate` False all start at position 0, which breaks the position symmetry.
    """
    if task.offsets != "consecutive" or task.label_noise:
        raise InvalidArgumentError(
            "confinement is sampled on consecutive, noise-free recall and rotated here",
            got=f"offsets={task.offsets!r}, label_noise={task.label_noise}",
            wanted="offsets='consecutive', label_noise=0",
            todo="change the task",
        )
    if n_positions < task.length:
        raise InvalidArgumentError(
            "rotated sequences must not meet themselves",
            got=f"n_positions={n_positions}",
            wanted=f"at least {task.length}",
            todo="raise n_positions",
        )
    g = torch.Generator().manual_seed(seed)
    batch = task.sample(n, generator=g)
    start = torch.randint(n_positions, (n, 1), generator=g) * int(rotate)
    positions = (start + torch.arange(task.length)) % n_positions
    weight = torch.full((n,), 1 / n, dtype=torch.float64)
    return Enumerated(batch.tokens, positions, batch.targets[:, -1], weight)


@dataclass(frozen=True)
class Decay:
    """Outside share against the number of sequences.

    `slope`: least squares of log share on log N; -1 is sampling noise, 0 a real leak.
    `split`: <g1_out, g2_out> / <g1, g2> of two independent halves of the largest N: unbiased, 0
    where the population gradient is confined.
    """

    sizes: tuple[int, ...]
    shares: tuple[float, ...]
    slope: float
    split: float


def decay(
    model: IdealisedModel,
    frame: Frame,
    task: AssociativeRecall,
    *,
    sizes: Sequence[int] = (2**12, 2**13, 2**14, 2**15),
    rotate: bool = True,
    seed: int = 0,
) -> Decay:
    """Outside share of gradients from growing samples, at one model in the span."""
    shares, halves = [], []
    for index, size in enumerate(sizes):
        parts = 2 if index == len(sizes) - 1 else 1
        grads = []
        for part in range(parts):
            data = sample_rotated(
                task,
                size // parts,
                n_positions=model.n_positions,
                rotate=rotate,
                seed=7919 * seed + 31 * index + part,
            )
            grads.append(population_gradient(model, data))
        shares.append(outside_share(frame, _mean(grads)))
        halves = grads
    x = torch.tensor([math.log(s) for s in sizes])
    y = torch.tensor([math.log(s) for s in shares])
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())
    outs = [_flat(frame.outside(*g)) for g in halves]
    alls = [_flat(g) for g in halves]
    split = float(outs[0] @ outs[1]) / float(alls[0] @ alls[1])
    return Decay(tuple(sizes), tuple(shares), slope, split)


def _flat(gradient: Gradient) -> Tensor:
    return torch.cat([*(w.flatten() for w in gradient[0]), gradient[1].flatten()])


def _mean(grads: Sequence[Gradient]) -> Gradient:
    n = len(grads)
    attention = tuple(sum(ws) / n for ws in zip(*(g[0] for g in grads), strict=True))
    return attention, sum(g[1] for g in grads) / n  # type: ignore[return-value]
