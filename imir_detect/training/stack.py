"""Many small models of one shape trained at once: parameters stacked, one product for all.

A tiny model spends most of its time in overheads that a stack shares. The forward pass below is the
native model's, written for stacked parameters (a test compares the two); every model keeps its own
task, seed and data stream, so it does not matter who else is in the stack, but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks.base import IGNORE, Task
from imir_detect.training.loop import EVALUATION_SEED, Recipe
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import parameters

EPS = 1e-5
CHUNK = 16  # steps for which data is drawn at once
Stacked = dict[str, Tensor]


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


def train_stack(members: Sequence[Member], spec: ModelSpec) -> Iterator[Trained]:
    """Train all members, and yield each as it ends (its target reached, or its steps used up).

    Members share shape, steps, batch, rate and evaluation; their tasks share vocabulary, length and
    the places asked. The loss is the cross-entropy (nats) of the asked positions.
    """
    _check(members, spec)
    recipe = members[0].recipe
    left = list(members)
    histories: dict[str, list[dict[str, float]]] = {m.name: [] for m in members}
    generators = {m.name: torch.Generator().manual_seed(m.recipe.seed) for m in members}
    stack = _initial(members, spec)
    moments = [{k: torch.zeros_like(p) for k, p in stack.items()} for _ in range(2)]
    data: list[tuple[Tensor, Tensor]] = []
    for step in range(recipe.steps):
        at = step % CHUNK
        if at == 0:
            data = [_draw(m, generators[m.name]) for m in left]
        rows = slice(at * recipe.batch, (at + 1) * recipe.batch)
        tokens = torch.stack([t[rows] for t, _ in data])
        targets = torch.stack([t[rows] for _, t in data])
        loss = _step(stack, moments, spec, members[0], tokens, targets, step)
        last = step + 1 == recipe.steps
        if (step + 1) % recipe.evaluate_every and not last:
            continue
        keep = []
        for index, member in enumerate(left):
            row = {"step": float(step + 1), "loss": float(loss[index])}
            row |= _evaluate(stack, index, spec, member)
            histories[member.name].append(row)
            goals = member.recipe.stop_at
            reached = bool(goals) and all(row.get(k, 0.0) >= v for k, v in goals.items())
            if last or reached:
                yield Trained(member, _one(stack, index, member), histories[member.name])
            else:
                keep.append(index)
        if len(keep) < len(left):
            left, data = [left[i] for i in keep], [data[i] for i in keep]
            stack = {k: p[keep].detach().requires_grad_() for k, p in stack.items()}
            moments = [{k: v[keep] for k, v in moment.items()} for moment in moments]
        if not left:
            return


def forward(stack: Stacked, spec: ModelSpec, tokens: Tensor, *, first: int = 0) -> Tensor:
    """Logits (model, batch, pos, vocab) of positions `first` and later, for tokens
    (model, batch, pos)."""
    models, batch, length = tokens.shape
    heads, width = spec.n_heads, spec.head_width
    index = torch.arange(models)[:, None, None]
    x = stack["tok_embed.weight"][index, tokens]
    if spec.position == "standard":
        x = x + stack["pos.weight"][:, None, :length]
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    for layer in range(spec.n_layers):
        start = first if layer == spec.n_layers - 1 else 0  # the last layer's other places are idle
        own = f"layers.{layer}"
        y = _norm(stack, f"{own}.ln1", spec, x)

        def read(port: str, rows: Tensor, own: str = own) -> Tensor:
            out = _linear(stack, f"{own}.attn.{port}", rows)
            return out.view(models, batch, -1, heads, width).transpose(2, 3)

        q, k, v = read("q", y[:, :, start:]), read("k", y), read("v", y)
        if spec.position == "rotary":
            q, k = _rotate(q, start), _rotate(k, 0)
        mixed = scaled_dot_product_attention(
            q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), attn_mask=seen[start:]
        )
        mixed = mixed.transpose(1, 2).reshape(models, batch, -1, heads * width)
        x = x[:, :, start:] + _linear(stack, f"{own}.attn.o", mixed)
        if spec.d_mlp:
            hidden = _linear(stack, f"{own}.mlp.fc_in", _norm(stack, f"{own}.ln2", spec, x))
            x = x + _linear(stack, f"{own}.mlp.fc_out", gelu(hidden, approximate="tanh"))
    x = _norm(stack, "ln_out", spec, x)
    unembed = stack.get("head.weight", stack["tok_embed.weight"])
    flat = x.reshape(models, -1, spec.d_model) @ unembed.transpose(1, 2)
    return flat.view(*x.shape[:3], -1)


def _linear(stack: Stacked, name: str, x: Tensor) -> Tensor:
    weight, bias = stack[f"{name}.weight"], stack[f"{name}.bias"]
    flat = torch.baddbmm(bias[:, None], x.reshape(len(x), -1, x.shape[-1]), weight.transpose(1, 2))
    return flat.view(*x.shape[:-1], -1)


def _norm(stack: Stacked, name: str, spec: ModelSpec, x: Tensor) -> Tensor:
    if spec.norm is None:
        return x
    if spec.norm in ("LN", "LNPre"):
        x = x - x.mean(-1, keepdim=True)
    x = x * (x.pow(2).mean(-1, keepdim=True) + EPS).rsqrt()
    for part, apply in (("weight", torch.mul), ("bias", torch.add)):
        if f"{name}.{part}" in stack:
            x = apply(x, stack[f"{name}.{part}"][:, None, None])
    return x


def _rotate(x: Tensor, start: int) -> Tensor:
    """Rotary positions: adjacent pairs turn by place times 10000^(-2i / width)."""
    width = x.shape[-1]
    rate = 10000.0 ** (-torch.arange(0, width, 2) / width)
    angle = torch.outer(torch.arange(start, start + x.shape[-2]), rate)
    cos, sin = angle.cos(), angle.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)


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
