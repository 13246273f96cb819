"""Which head wins, told from the coordinates at initialisation.

Of H previous-token heads that could feed one matching head, gradient descent grows the one whose
alpha and beta are largest together: each coordinate's gradient is proportional to the other, so
neither alone decides. The prediction is the head with the largest weighted sum
|M| alpha_h + |I| beta_h, the norms being those of the directions in weight space (1 in the
coordinate model). The winner is the head that in the end adds most to the answer's attention score:
beta_h times the share of head h's attention, at the answer, on the query's earlier copy.
(Initial values decide: the paper, section 5. The weighted sum is our choice.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.names import TOKEN_IDENTITY
from imir_detect.frame.relations import cycle, selections
from imir_detect.models.coordinates import zeros
from imir_detect.models.idealised import IdealisedModel, idealised
from imir_detect.tasks.base import Task
from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory.assumptions import require
from imir_detect.theory.reduced import Reduced, coefficients, gradient
from imir_detect.theory.ring import ring_positions

PREDICTORS = ("alpha", "beta", "alpha + beta")


@dataclass(frozen=True)
class Race:
    """One run. `contributions` (head) to the answer's score at the end, in nats.

    `predicted`: the head each predictor names. `lead`: the winner's share of the positive
    contributions, 1/H where all share the job. `emerged`: final attention on the answer above 1/2.
    """

    predicted: dict[str, int]
    contributions: tuple[float, ...]
    attention: float

    @property
    def winner(self) -> int:
        return max(range(len(self.contributions)), key=lambda h: self.contributions[h])

    @property
    def lead(self) -> float:
        positive = [max(c, 0.0) for c in self.contributions]
        return max(positive) / sum(positive) if sum(positive) else 0.0

    @property
    def emerged(self) -> bool:
        return self.attention > 0.5


def hit_rates(races: Sequence[Race]) -> dict[str, float]:
    """Share of the runs that emerged in which each predictor named the winner."""
    done = [race for race in races if race.emerged]
    if not done:
        raise InvalidArgumentError(
            "no run emerged, so nobody won",
            got=f"{len(races)} runs",
            wanted="at least one with attention above 1/2",
            todo="train longer or faster",
        )
    return {
        name: sum(race.predicted[name] == race.winner for race in done) / len(done)
        for name in PREDICTORS
    }


def predict(
    alpha: Float[Tensor, " head"], beta: Float[Tensor, " head"], *, weights: tuple[float, float]
) -> dict[str, int]:
    """The head each predictor names; `weights`: norms of the two directions."""
    a, b = weights[0] * alpha, weights[1] * beta
    values = dict(zip(PREDICTORS, (a, b, a + b), strict=True))
    return {name: int(value.argmax()) for name, value in values.items()}


def race_coordinates(
    task: Task,
    *,
    heads: int,
    scale: float = 0.5,
    rate: float = 2.0,
    steps: int = 600,
    batch: int = 256,
    seed: int = 0,
) -> Race:
    """The coordinate model from alpha, beta ~ N(0, scale^2), by gradient descent on new batches.

    Stops when the mean attention on the answer passes 0.8.
    """
    recall = _checked(task)
    g = torch.Generator().manual_seed(seed)
    alpha, beta = scale * torch.randn(2, heads, generator=g, dtype=torch.float64)
    point = Reduced.of(alpha, beta, 0.1)
    attention = 0.0
    for step in range(steps):
        data = recall.sample(batch, generator=g)
        if step % 10 == 0:
            answer = data.answer_position[:, -1:]
            attention = float(point.attention(data.tokens).gather(1, answer).mean())
            if attention > 0.8:
                break
        move = rate * gradient(point, data, recall.relation)
        move[-1] = 0.0
        point = Reduced.from_flat(point.flat() - move)
    shares = _share_on_query(_previous_pattern(point, recall.length), data.tokens, answer)
    found = tuple((point.beta * shares).tolist())
    return Race(predict(alpha, beta, weights=(1.0, 1.0)), found, attention)


def race_weights(
    task: Task,
    *,
    heads: int,
    scale: float = 0.5,
    noise: float | None = None,
    rate: float = 10.0,
    steps: int = 600,
    batch: int = 128,
    seed: int = 0,
) -> Race:
    """The full idealised model, by descent on all weights, from W ~ N(0, scale^2).

    With `noise`, it starts as the coordinate model does instead: alpha, beta ~ N(0, scale^2) on
    their directions, gamma 0.1, and on every weight N(0, noise^2) besides.

    Positions lie on a ring (`theory.ring`), so that every entry of M counts alike. Layer 0 has
    `heads` trained heads; of layer 1 one is trained and the others stay at zero.
    """
    recall = _checked(task)
    places = 2 * recall.n_blocks + 4
    drawn = scale if noise is None else noise
    model = idealised(
        recall.vocab_size, places, 2, heads, scale=drawn, seed=seed, dtype=torch.float32
    )
    chosen = selections(recall.relation, places, per_class=False)
    frame = model.frame(chosen)
    names = list(chosen)
    shift, match = names.index(cycle(1)), names.index(TOKEN_IDENTITY)
    first, second = model.attention[0], model.attention[1].clone()
    second[1:] = 0.0
    small = model.output
    if noise is None:
        small = 0.1 * model.output / scale  # the read-out starts small: it is not what is raced
    else:
        g = torch.Generator().manual_seed(seed)
        pairs = scale * torch.randn(2, heads, generator=g, dtype=torch.float64)
        begin = Reduced.of(pairs[0], pairs[1], 0.1)
        planted, reading = frame.rebuild(coefficients(begin, frame, zeros(frame), shift=cycle(1)))
        first, second, small = first + planted[0], second + planted[1], small + reading
    model = model.with_weights((first.float(), second.float()), small.float())
    weights = (float(chosen[cycle(1)].norm()), float(chosen[TOKEN_IDENTITY].norm()))

    def read(now: IdealisedModel) -> tuple[Tensor, Tensor]:
        c = frame.project(now.attention, now.output)
        return c.attention[0][:, shift, 0, 0], c.attention[1][0, match, 0, 1 : heads + 1]

    alpha, beta = read(model)
    leaves = [w.clone().requires_grad_() for w in model.parameters()]
    g = torch.Generator().manual_seed(seed)
    attention = 0.0
    for step in range(steps):
        data = recall.sample(batch, generator=g)
        where = ring_positions(batch, recall.n_blocks, places, generator=g)
        live = model.with_weights(tuple(leaves[:-1]), leaves[-1])
        if step % 20 == 0:
            with torch.no_grad():
                pattern = live.pattern(data.tokens, where, layer=1)[:, 0, -1]
            answer = data.answer_position[:, -1:]
            attention = float(pattern.gather(1, answer).mean())
            if attention > 0.8:
                break
        logits = live.logits(data.tokens, where)
        loss = torch.nn.functional.cross_entropy(logits, data.targets[:, -1])
        grads = torch.autograd.grad(loss, leaves)
        grads[1][1:] = 0.0
        with torch.no_grad():
            for leaf, grad in zip(leaves, grads, strict=True):
                leaf -= rate * grad
    plain = [leaf.detach() for leaf in leaves]
    done = model.with_weights(tuple(plain[:-1]), plain[-1])
    shares = _share_on_query(done.pattern(data.tokens, where, layer=0), data.tokens, answer)
    found = tuple((read(done)[1] * shares).tolist())
    return Race(predict(alpha, beta, weights=weights), found, attention)


def _previous_pattern(point: Reduced, length: int) -> Float[Tensor, "1 head pos pos"]:
    """Layer 0's attention in the coordinate model: alpha on the position before."""
    scores = point.alpha[:, None, None] * torch.eye(length, dtype=point.alpha.dtype).roll(-1, 1)
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1)[None]


def _share_on_query(
    pattern: Float[Tensor, "batch head pos pos"],
    tokens: Int[Tensor, "batch pos"],
    answer: Int[Tensor, "batch 1"],
) -> Float[Tensor, " head"]:
    """Mean attention of every head, at the answer's position, on tokens equal to the query."""
    n, heads, length = len(tokens), pattern.shape[1], tokens.shape[1]
    pattern = pattern.expand(n, -1, -1, -1)
    rows = pattern.gather(2, answer[:, None, :, None].expand(n, heads, 1, length))[:, :, 0]
    matches = (tokens == tokens[:, -1:]).to(rows.dtype)
    return torch.einsum("bhj,bj->bh", rows, matches).mean(0)


def _checked(task: Task) -> AssociativeRecall:
    return require(
        "the winner",
        task,
        offsets="consecutive",
        rare_frequency=1.0,
        burstiness=1,
        label_noise=0.0,
        present=1.0,
    )
