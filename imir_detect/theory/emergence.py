"""Emergence time of the in-context circuit against context length, by gradient flow.

The coordinates (alpha, beta, gamma) of lexinvariant recall follow the population gradient,
estimated once on a fixed set of sequences: d(coordinate)/dt = -dL/d(coordinate), integrated by
LSODA from a small start. The emergence time is the first at which the mean attention on the answer
is 1/2. The predecessor (arXiv 2511.01033) finds N^2 in the context length, with mean squared error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from imir_detect.errors import ImirError, InvalidArgumentError
from imir_detect.tasks.base import Batch, Task
from imir_detect.theory.assumptions import require
from imir_detect.theory.reduced import Reduced

Loss = Literal["mse", "ce"]
COORDINATES = ("alpha", "beta", "gamma")
PATIENCE = 1e9  # flow time after which a circuit that has not emerged never will


@dataclass(frozen=True)
class Emergence:
    """`time` of emergence; `onset` of each coordinate: when it passes a tenth of its final value.

    Final means at twice the emergence time. `final`: values then.
    """

    n_blocks: int
    loss: Loss
    time: float
    onset: dict[str, float]
    final: dict[str, float]

    @property
    def order(self) -> tuple[str, ...]:
        """Coordinates by onset."""
        return tuple(sorted(self.onset, key=lambda name: self.onset[name]))


def emergence(
    task: Task, *, loss: Loss = "mse", start: float = 0.01, n: int = 512, seed: int = 0
) -> Emergence:
    """Integrate the flow of one task. Needs lexinvariant, consecutive, noise-free recall.

    The squared error is summed over the vocabulary, halved; cross-entropy is in nats.
    """
    recall = require(
        "the emergence time",
        task,
        offsets="consecutive",
        rare_frequency=1.0,
        burstiness=1,
        label_noise=0.0,
        present=1.0,
    )
    if loss not in ("mse", "ce"):
        raise InvalidArgumentError(
            "no such loss", got=repr(loss), wanted="'mse' or 'ce'", todo="use one of these"
        )
    batch = recall.sample(n, generator=torch.Generator().manual_seed(seed))
    answer = batch.answer_position[:, -1:]

    def slope(_: float, values: Any) -> Any:
        flat = torch.tensor([*values, 0.0], dtype=torch.float64, requires_grad=True)
        logits = Reduced.from_flat(flat).logits(batch.tokens, recall.relation)
        (found,) = torch.autograd.grad(_mean_loss(logits, batch, loss), flat)
        return -found[:3].numpy()

    def attended(_: float, values: Any) -> float:
        point = Reduced.of(*values)
        return float(point.attention(batch.tokens).gather(1, answer).mean()) - 0.5

    before = _integrate(slope, 0.0, PATIENCE, [start] * 3, attended)
    if not before.t_events[0].size:
        raise ImirError(
            "the circuit does not emerge",
            got=f"attention {attended(0, before.y[:, -1]) + 0.5:.2f} at time {PATIENCE:.0g}",
            wanted="0.5",
            todo="raise the start, or use a task that one circuit can solve",
        )
    time = float(before.t_events[0][0])
    after = _integrate(slope, time, 2 * time, before.y[:, -1], None)
    final = dict(zip(COORDINATES, (float(v) for v in after.y[:, -1]), strict=True))
    onset = {}
    for index, name in enumerate(COORDINATES):
        times = [*before.t, *after.t[1:]]
        values = [*before.y[index], *after.y[index][1:]]
        onset[name] = _first_crossing(times, values, 0.1 * final[name])
    return Emergence(recall.n_blocks, loss, time, onset, final)


def exponents(runs: Sequence[Emergence]) -> list[float]:
    """Local exponents of time in n between neighbouring runs, d log T / d log n."""
    return [
        math.log(b.time / a.time) / math.log(b.n_blocks / a.n_blocks) for a, b in pairwise(runs)
    ]


def exponent(runs: Sequence[Emergence]) -> float:
    """Least-squares slope of log time on log n over all runs."""
    x = torch.tensor([math.log(r.n_blocks) for r in runs])
    y = torch.tensor([math.log(r.time) for r in runs])
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def _mean_loss(logits: Tensor, batch: Batch, loss: Loss) -> Tensor:
    targets = batch.targets[:, -1]
    if loss == "ce":
        return torch.nn.functional.cross_entropy(logits, targets)
    # sum (logit - onehot)^2 / 2 without building the one-hot matrix.
    right = logits.gather(1, targets[:, None])[:, 0]
    return (logits.square().sum(1) / 2 - right + 0.5).mean()


def _integrate(
    slope: Callable[[float, Any], Any],
    begin: float,
    end: float,
    start: Any,
    stop: Callable[[float, Any], float] | None,
) -> Any:
    try:
        from scipy.integrate import solve_ivp
    except ImportError as error:
        raise ImirError(
            "gradient flow needs scipy",
            got="no scipy",
            wanted="scipy>=1.12",
            todo="pip install scipy (scikit-learn, which this package needs, brings it)",
        ) from error
    if stop is not None:
        stop.terminal = True  # type: ignore[attr-defined]
    return solve_ivp(slope, (begin, end), start, method="LSODA", events=stop, rtol=1e-5, atol=1e-8)


def _first_crossing(times: Sequence[float], values: Sequence[float], level: float) -> float:
    """First time at which the values pass `level`, linear between steps."""
    for (t0, v0), (t1, v1) in zip(
        zip(times, values, strict=True), zip(times[1:], values[1:], strict=True), strict=False
    ):
        if v0 < level <= v1:
            return float(t0 + (t1 - t0) * (level - v0) / (v1 - v0))
    return float(times[0])
