"""Many small models of one shape trained at once: parameters stacked, one product for all.

A tiny model spends most of its time in overheads that a stack shares. Every model keeps its own
task, seed and data stream, so it does not matter who else is in the stack, but for rounding. A
stack that is killed goes on from its last evaluation with the same members, to the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from imir_detect.errors import InvalidArgumentError
from imir_detect.files import discard
from imir_detect.tasks.base import IGNORE, Task
from imir_detect.training.loop import EVALUATION_SEED, Recipe
from imir_detect.training.stack_run import StackRun
from imir_detect.training.stacked_forward import Stacked, forward
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import parameters

CHUNK = 16  # steps for which data is drawn at once


@dataclass(frozen=True)
class Member:
    """One model of a stack: its task and recipe, and what sets its weights apart.

    - `tied`: the unembedding is the embedding, in training too.
    - `sinusoidal`: positions are fixed sines and cosines, never trained.
    """

    name: str
    task: Task
    recipe: Recipe
    tied: bool = False
    sinusoidal: bool = False


@dataclass
class Trained:
    """What came of a member: its parameters by plain name, and one row an evaluation."""

    member: Member
    tensors: Stacked
    history: list[dict[str, float]] = field(default_factory=list)


def train_stack(
    members: Sequence[Member], spec: ModelSpec, *, file: Path | None = None
) -> Iterator[Trained]:
    """Train all members, and yield each as it ends (its target reached, or its steps used up).

    Members share shape, steps, batch, rate and evaluation; their tasks share vocabulary, length and
    the places asked. The loss is the cross-entropy (nats) of the asked positions.

    With `file`, a checkpoint is kept there from the start until the stack has ended, and taken up
    if it is there. It is written after what ended at an evaluation was yielded, so that a kill
    between the two yields that again.
    """
    _check(members, spec)
    recipe = members[0].recipe
    run = _begun(members, spec, file)
    generators = {m.name: torch.Generator() for m in run.left}
    for name, generator in generators.items():
        generator.set_state(run.drawn[name])
    data: list[tuple[Tensor, Tensor]] = []
    for step in range(run.step, recipe.steps):
        at = step % CHUNK
        if at == 0 or not data:
            run.drawn = {m.name: generators[m.name].get_state() for m in run.left}
            data = [_draw(m, generators[m.name]) for m in run.left]
        rows = slice(at * recipe.batch, (at + 1) * recipe.batch)
        tokens = torch.stack([t[rows] for t, _ in data])
        targets = torch.stack([t[rows] for _, t in data])
        loss = _step(run.stack, run.moments, spec, members[0], tokens, targets, step)
        last = step + 1 == recipe.steps
        if (step + 1) % recipe.evaluate_every and not last:
            continue
        keep = []
        for index, member in enumerate(run.left):
            row = {"step": float(step + 1), "loss": float(loss[index])}
            row |= _evaluate(run.stack, index, spec, member)
            run.histories[member.name].append(row)
            goals = member.recipe.stop_at
            reached = bool(goals) and all(row.get(k, 0.0) >= v for k, v in goals.items())
            if last or reached:
                yield Trained(member, _one(run.stack, index, member), run.histories[member.name])
            else:
                keep.append(index)
        if not keep:
            break
        if len(keep) < len(run.left):
            run.keep(keep)
            data = [data[i] for i in keep]
        if file is not None:
            run.step = step + 1
            if run.step % CHUNK == 0:  # the next data is yet to be drawn
                run.drawn = {m.name: generators[m.name].get_state() for m in run.left}
            run.write(file, members, spec)
    if file is not None:
        discard(file)


def _begun(members: Sequence[Member], spec: ModelSpec, file: Path | None) -> StackRun:
    """The run as its checkpoint has it, or from the start."""
    if file is not None and file.exists():
        return StackRun.read(file, members, spec)
    stack = _initial(members, spec)
    run = StackRun(
        list(members),
        stack,
        [{k: torch.zeros_like(p) for k, p in stack.items()} for _ in range(2)],
        {m.name: [] for m in members},
        {m.name: torch.Generator().manual_seed(m.recipe.seed).get_state() for m in members},
    )
    if file is not None:
        run.write(file, members, spec)
    return run


def _draw(member: Member, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    batch = member.task.sample(CHUNK * member.recipe.batch, generator=generator)
    return batch.tokens, batch.targets


def _step(
    stack: Stacked,
    moments: list[Stacked],
    spec: ModelSpec,
    member: Member,
    tokens: Tensor,
    targets: Tensor,
    step: int,
) -> Tensor:
    """One AdamW step of all models; their losses."""
    first = int((targets != IGNORE).any(0).any(0).nonzero()[0])
    logits = forward(stack, spec, tokens, first=first)
    asked = targets[:, :, first:]
    losses = cross_entropy(logits.flatten(0, 2), asked.flatten(), reduction="none")
    count = (asked != IGNORE).sum((1, 2))
    loss = losses.view(asked.shape).sum((1, 2)) / count
    trained = [k for k in stack if not (member.sinusoidal and k == "pos.weight")]
    gradients = torch.autograd.grad(loss.sum(), [stack[k] for k in trained])
    rate, decay = member.recipe.rate_at(step), member.recipe.weight_decay
    with torch.no_grad():
        for name, gradient in zip(trained, gradients, strict=True):
            mean, square = moments[0][name], moments[1][name]
            mean.lerp_(gradient, 0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            spread = (square / (1 - 0.999 ** (step + 1))).sqrt_().add_(1e-8)
            stack[name].mul_(1 - rate * decay)
            stack[name].addcdiv_(mean, spread, value=-rate / (1 - 0.9 ** (step + 1)))
    return loss.detach()


@torch.no_grad()
def _evaluate(stack: Stacked, index: int, spec: ModelSpec, member: Member) -> dict[str, float]:
    from imir_detect.tasks.base import measure

    one = {k: p[index : index + 1] for k, p in stack.items()}
    return measure(
        member.task,
        lambda tokens, positions: forward(one, spec, tokens[None])[0],
        n=256,
        seed=EVALUATION_SEED,
    )


def _initial(members: Sequence[Member], spec: ModelSpec) -> Stacked:
    """Every member's own fresh parameters, stacked."""
    each = []
    for member in members:
        own = {k: p.detach().clone() for k, p in parameters(spec.boot(member.recipe.seed)).items()}
        if member.tied:
            del own["head.weight"]
        if member.sinusoidal:
            own["pos.weight"] = sinusoids(spec.n_ctx, spec.d_model)
        each.append(own)
    return {k: torch.stack([own[k] for own in each]).requires_grad_() for k in each[0]}


def sinusoids(length: int, width: int) -> Tensor:
    """Fixed positions (length, width) of Vaswani et al. 2017, at the size of a trained table."""
    rate = 10000.0 ** (-torch.arange(0, width, 2) / width)
    angle = torch.outer(torch.arange(length), rate)
    return 0.5 * torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)[:, :width]


def _one(stack: Stacked, index: int, member: Member) -> Stacked:
    own = {k: p[index].detach().clone() for k, p in stack.items()}
    if member.tied:
        own["head.weight"] = own["tok_embed.weight"].clone()
    return own


def _check(members: Sequence[Member], spec: ModelSpec) -> None:
    def shared(member: Member) -> tuple[object, ...]:
        r, t = member.recipe, member.task
        how = (r.steps, r.batch, r.rate, r.weight_decay, r.warmup, r.tail, r.evaluate_every)
        return (*how, t.vocab_size, t.length, t.n_positions, member.tied, member.sinusoidal)

    kinds = {shared(member) for member in members}
    fits = all(
        (m.task.vocab_size, m.task.n_positions) == (spec.d_vocab, m.task.length) for m in members
    )
    if len(kinds) != 1 or not fits:
        raise InvalidArgumentError(
            "these models cannot be trained as one stack",
            got=f"{len(kinds)} kinds of recipe, vocabulary, length or tying",
            wanted=f"one kind, d_vocab={spec.d_vocab}, consecutive positions",
            todo="group the members by these first",
        )
