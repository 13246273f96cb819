"""Training of idealised models: all weights, the span only, or chosen coordinates only.

The lottery ticket of the paper (section 5): the four coordinates alone follow the full model. To
compare like with like, `descent` is plain gradient descent in weight space for both: restricted to
chosen directions it moves the coefficients by G^-1 times their gradient, G the directions' Gram
matrix, which is the orthogonal projection of the full step onto their span. `normalised` is descent
in what is trained itself, by steps of a given length: the path of a small start's gradient flow,
walked at a steady pace, so that plateaus cost little and few coordinates grow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.basis import Coefficients, Frame
from imir_detect.linalg import rank_tolerance
from imir_detect.models import coordinates as co
from imir_detect.models.idealised import IdealisedModel
from imir_detect.progress import bar
from imir_detect.training.curves import Row, Sample

Optimiser = Literal["adam", "descent", "normalised"]
TINY = 1e-12  # a gradient below this is no direction
Watch = Callable[[Coefficients], dict[str, float]]


@dataclass(frozen=True)
class Plan:
    """How to train. `rate` falls to zero over `tail`, after 50 steps of warm-up with Adam.

    With "descent" it is constant; with "normalised" it is the length of a step.
    `penalty`: L1 on the coefficients, from step `penalty_from` on (coordinate training only).
    """

    steps: int
    rate: float
    optimiser: Optimiser = "adam"
    batch: int = 256
    tail: float = 0.3
    penalty: float = 0.0
    penalty_from: int = 0
    record_every: int = 25
    seed: int = 0

    def __post_init__(self) -> None:
        if self.optimiser not in get_args(Optimiser) or min(self.steps, self.batch) < 1:
            raise InvalidArgumentError(
                "this plan cannot run",
                got=f"optimiser={self.optimiser!r}, steps={self.steps}, batch={self.batch}",
                wanted="'adam', 'descent' or 'normalised', at least one step and sequence",
                todo="mend the plan",
            )

    def rate_at(self, step: int) -> float:
        if self.optimiser == "descent":
            return self.rate
        left = (self.steps - step) / max(1.0, self.tail * self.steps)
        warm = 1.0 if self.optimiser == "normalised" else (step + 1) / 50
        return self.rate * min(1.0, warm, left)


@dataclass(frozen=True)
class CoordinateRun:
    """Coefficients after training, and one row a record: step, loss, probability, accuracy."""

    coefficients: Coefficients
    history: list[Row]


@dataclass(frozen=True)
class WeightRun:
    """The same for training in weights."""

    model: IdealisedModel
    history: list[Row]


def train_coordinates(
    frame: Frame,
    sample: Sample,
    plan: Plan,
    *,
    start: Coefficients,
    chosen: Coefficients | None = None,
    watch: Watch | None = None,
) -> CoordinateRun:
    """Train the coefficients of a separated frame; with `chosen` (0/1), only those set in it."""
    mask = None if chosen is None else chosen.flat() != 0
    flat = start.flat().clone()
    if mask is not None:
        flat = flat * mask
    flat.requires_grad_()
    adam = torch.optim.Adam([flat]) if plan.optimiser == "adam" else None
    inverse = _inverse_grams(frame, start, chosen) if plan.optimiser == "descent" else None
    generator = torch.Generator().manual_seed(plan.seed)
    history: list[Row] = []
    for step in bar(range(plan.steps), what="training"):
        tokens, answers, positions = sample(plan.batch, generator)
        data = co.kernels(frame, tokens, answers, positions, dtype=flat.dtype)
        logits = co.logits(start.like(flat), data)
        loss = torch.nn.functional.cross_entropy(logits, answers)
        objective = loss
        if plan.penalty and step >= plan.penalty_from:
            objective = loss + plan.penalty * flat.abs().sum()
        (gradient,) = torch.autograd.grad(objective, flat)
        if mask is not None:
            gradient = gradient * mask
        if step % plan.record_every == 0 or step + 1 == plan.steps:
            now = start.like(flat.detach().clone())
            history.append(_row(step, loss, logits, answers, watch, now))
        with torch.no_grad():
            if adam is not None:
                flat.grad = gradient
                adam.param_groups[0]["lr"] = plan.rate_at(step)
                adam.step()
            elif inverse is not None:
                flat -= plan.rate_at(step) * _precondition(start.like(gradient), inverse)
            else:
                flat -= plan.rate_at(step) * _unit([gradient])[0]
    return CoordinateRun(start.like(flat.detach().clone()), history)


def train_weights(
    model: IdealisedModel,
    sample: Sample,
    plan: Plan,
    *,
    frame: Frame | None = None,
    watch: Watch | None = None,
    confine: bool = False,
    frozen: Callable[[list[Tensor]], None] | None = None,
) -> WeightRun:
    """Train all weights. With `frame`, records what `watch` says of their projection.

    `confine` projects every gradient on the span of `frame`, so that with descent the weights
    move inside it only. `frozen(gradients)` may zero parts of the gradients in place.
    """
    project = _projector(frame) if confine and frame is not None else None
    leaves = [w.detach().clone().requires_grad_() for w in model.parameters()]
    adam = torch.optim.Adam(leaves) if plan.optimiser == "adam" else None
    generator = torch.Generator().manual_seed(plan.seed)
    history: list[Row] = []
    for step in bar(range(plan.steps), what="training"):
        tokens, answers, positions = sample(plan.batch, generator)
        live = model.with_weights(tuple(leaves[:-1]), leaves[-1])
        logits = live.logits(tokens, positions)
        loss = torch.nn.functional.cross_entropy(logits, answers)
        gradients = list(torch.autograd.grad(loss, leaves))
        if project is not None:
            gradients = project(gradients)
        if frozen is not None:
            frozen(gradients)
        if plan.optimiser == "normalised":
            gradients = _unit(gradients)
        if step % plan.record_every == 0 or step + 1 == plan.steps:
            now = None
            if frame is not None and watch is not None:
                now = frame.project(*_detached(leaves))
            history.append(_row(step, loss, logits, answers, watch if now else None, now))
        with torch.no_grad():
            for leaf, gradient in zip(leaves, gradients, strict=True):
                if adam is None:
                    leaf -= plan.rate_at(step) * gradient
                else:
                    leaf.grad = gradient
        if adam is not None:
            adam.param_groups[0]["lr"] = plan.rate_at(step)
            adam.step()
    return WeightRun(model.with_weights(*_detached(leaves)), history)


def _unit(gradients: list[Tensor]) -> list[Tensor]:
    """The same direction, length 1 over all of them; nothing where the gradient is nothing."""
    length = torch.stack([g.norm() for g in gradients]).norm()
    return [g / length.clamp(min=TINY) for g in gradients]


def _detached(leaves: list[Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
    plain = [leaf.detach().clone() for leaf in leaves]
    return tuple(plain[:-1]), plain[-1]


def _row(
    step: int,
    loss: Tensor,
    logits: Tensor,
    answers: Tensor,
    watch: Watch | None,
    now: Coefficients | None,
) -> Row:
    found = logits.detach()
    right = found.softmax(-1).gather(1, answers[:, None]).mean()
    row = {
        "step": float(step),
        "loss": float(loss.detach()),
        "probability": float(right),
        "accuracy": co.accuracy(found, answers),
    }
    if not math.isfinite(row["loss"]):
        raise InvalidArgumentError(
            "training diverged",
            got=f"a loss of {row['loss']} at step {step}",
            wanted="a finite loss",
            todo="lower the rate",
        )
    return {**row, **(watch(now) if watch and now else {})}


def _projector(frame: Frame) -> Callable[[list[Tensor]], list[Tensor]]:
    """Orthogonal projection on the span, one block of paths at a time."""
    if not frame.separated:
        raise InvalidArgumentError(
            "training is confined to the span of a separated frame only",
            got="a frame with value maps that overlap",
            wanted="values=None",
            todo="use idealised(..., values='separated')",
        )
    x = frame.embedding
    d = x.shape[1]

    def planes(stack: Tensor) -> Tensor:
        cores = torch.einsum("ma,smn,nb->sab", x, stack, x).flatten(1)
        _, values, right = torch.linalg.svd(cores.double(), full_matrices=False)
        return right[values > rank_tolerance(cores) * values[0]].to(x.dtype)

    score, out = planes(frame.stack), planes(frame.output_stack)

    def project(gradients: list[Tensor]) -> list[Tensor]:
        found = []
        for gradient in gradients[:-1]:
            heads, n = len(gradient), gradient.shape[-1] // d
            blocks = gradient.reshape(heads, n, d, n, d).transpose(2, 3).flatten(3)
            inside = (blocks @ score.T @ score).reshape(heads, n, n, d, d)
            found.append(inside.transpose(2, 3).reshape(gradient.shape))
        blocks = gradients[-1].reshape(-1, d * d)
        return [*found, (blocks @ out.T @ out).reshape(gradients[-1].shape)]

    return project


def _inverse_grams(
    frame: Frame, start: Coefficients, chosen: Coefficients | None
) -> list[Float[Tensor, "*block selection selection"]]:
    """Pseudo-inverse Gram matrices of the chosen selections, for every block of paths."""
    x = frame.embedding.double()
    found = []
    for index, like in enumerate([*start.attention, start.output]):
        last = index == len(start.attention)
        stack = frame.output_stack if last else frame.stack
        cores = torch.einsum("ma,smn,nb->sab", x, stack.double(), x).flatten(1)
        gram = cores @ cores.T
        on = torch.ones_like(like)
        if chosen is not None:
            on = ((chosen.output if last else chosen.attention[index]) != 0).to(like.dtype)
        on = (on.T if last else on.permute(0, 2, 3, 1)).double()  # (*block, selection)
        masked = on[..., :, None] * gram * on[..., None, :]
        # Eigenvalues of a Gram matrix are squares, and the embedding has its own precision.
        least = max(rank_tolerance(masked), rank_tolerance(cores.to(frame.embedding.dtype)) ** 2)
        inverse = torch.linalg.pinv(masked, rtol=least, hermitian=True)
        found.append(inverse.to(like.dtype))
    return found


def _precondition(gradient: Coefficients, inverse: list[Tensor]) -> Float[Tensor, " direction"]:
    attention = tuple(
        torch.einsum("hqkst,htqk->hsqk", g, a)
        for g, a in zip(inverse[:-1], gradient.attention, strict=True)
    )
    output = torch.einsum("pst,tp->sp", inverse[-1], gradient.output)
    return Coefficients(attention, output).flat()
