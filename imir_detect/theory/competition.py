"""ICL against IWL as an outcome: what the four coordinates predict, and what a trained model does.

Both start from the same coordinates and go by gradient descent in weight space on recall with a
fixed relation: the four-coordinate model (a coordinate moves by its gradient over its direction's
squared norm) and the full idealised model, whose blocks stand anywhere on a ring, so that only
distances inside a block carry meaning. What counts is behaviour: accuracy on fresh associations
with the answer in context (ICL), and on R with the answer absent (IWL). The paper (section 5)
states that initial values and data statistics decide between them. Where the answer is always in
the context (`present` 1), nothing trains the answer from weights beside a working ICL circuit, and
IWL is asked of a situation that the model has not met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.basis import Frame
from imir_detect.frame.relations import cycle, selections
from imir_detect.models.coordinates import zeros
from imir_detect.models.idealised import IdealisedModel, from_coefficients, idealised
from imir_detect.tasks.base import AXES, Axis, Batch, Task, accuracy
from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory.assumptions import require
from imir_detect.theory.reduced import Reduced, coefficients, gradient, norms
from imir_detect.theory.ring import spread_positions

NAMES = ("alpha", "beta", "gamma", "delta")
WORKS, BORDER = 0.5, 0.2
Logits = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Outcome:
    """Accuracies over training: one row a record, {"step", "icl", "iwl"}.

    `label`: "icl", "iwl", "both" or "none", by which final accuracies pass 1/2. `on_border`: one of
    them is within 0.2 of 1/2.
    """

    history: tuple[dict[str, float], ...]

    @property
    def icl(self) -> float:
        return self.history[-1]["icl"]

    @property
    def iwl(self) -> float:
        return self.history[-1]["iwl"]

    @property
    def label(self) -> str:
        names = {(True, True): "both", (True, False): "icl", (False, True): "iwl"}
        return names.get((self.icl > WORKS, self.iwl > WORKS), "none")

    @property
    def on_border(self) -> bool:
        return min(abs(self.icl - WORKS), abs(self.iwl - WORKS)) < BORDER

    def lost(self, axis: Axis) -> float:
        """Transience: how far "icl" or "iwl" ends below its best."""
        return max(row[axis] for row in self.history) - self.history[-1][axis]


@dataclass(frozen=True)
class Course:
    """How both are trained: descent steps, rate in weight space, batch, starting coordinates.

    `stretch`: how many more steps the four coordinates take. They follow the full model's course
    after one stretch of time, 1.40 to 1.41 in `benchmarks/paper/lottery_ticket.py`.
    """

    steps: int = 800
    rate: float = 10.0
    batch: int = 128
    start: tuple[float, float, float, float] = (0.1, 0.1, 0.1, 0.0)
    stretch: float = 1.4
    record_every: int = 100
    probe: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.steps, self.batch, self.record_every, self.probe, self.stretch) < 1:
            raise InvalidArgumentError(
                "this course cannot run",
                got=f"steps={self.steps}, batch={self.batch}, record_every={self.record_every}, "
                f"probe={self.probe}, stretch={self.stretch}",
                wanted="at least 1 of each",
                todo="mend the course",
            )


def outcome_row(task: Task, course: Course | None = None) -> dict[str, Any]:
    """One cell of a phase diagram: what both end with, as a flat row.

    f_r, f_v, b and "present" are the task's; "predicted" and "trained" the two labels, "agree"
    whether they are the same, "on border" whether either is near it; then final accuracies, and
    how much ICL and IWL were lost on the way. `imir_detect.figure("phase", rows)` draws a list of
    such rows.
    """
    recall, how = _checked(task), course or Course()
    guess, truth = predicted_outcome(recall, how), trained_outcome(recall, how)
    return {
        "f_r": recall.rare_frequency,
        "f_v": recall.variability,
        "b": recall.burstiness,
        "present": recall.present,
        "predicted": guess.label,
        "trained": truth.label,
        "agree": guess.label == truth.label,
        "on border": guess.on_border or truth.on_border,
        "predicted icl": guess.icl,
        "predicted iwl": guess.iwl,
        "trained icl": truth.icl,
        "trained iwl": truth.iwl,
        "icl lost, predicted": guess.lost("icl"),
        "icl lost, trained": truth.lost("icl"),
        "iwl lost, trained": truth.lost("iwl"),
    }


def predicted_outcome(task: Task, course: Course | None = None) -> Outcome:
    """The four coordinates' course and where it ends, after `stretch` times the steps."""
    recall, how = _checked(task), course or Course()
    size = norms(_frame(recall)[1], shift=cycle(1))
    scale = torch.tensor([how.rate / max(size[name], 1.0) ** 2 for name in NAMES])
    point = Reduced.of(*how.start)
    g = torch.Generator().manual_seed(how.seed)
    history = []
    last = round(how.stretch * how.steps)
    for step in range(last + 1):
        if step % how.record_every == 0 or step == last:
            logits = _fixed(point, recall)
            history.append({"step": float(step), **_behaviour(recall, logits, how)})
        batch = recall.sample(how.batch, generator=g)
        point = Reduced.from_flat(point.flat() - scale * gradient(point, batch, recall.relation))
    return Outcome(tuple(history))


def trained_outcome(task: Task, course: Course | None = None) -> Outcome:
    """The full idealised model's course: all weights, the same start, batches and rate."""
    recall, how = _checked(task), course or Course()
    model, frame = _frame(recall)
    begin = coefficients(Reduced.of(*how.start), frame, zeros(frame), shift=cycle(1))
    model = from_coefficients(model, frame, begin)
    leaves = [w.float().requires_grad_() for w in model.parameters()]
    narrow = idealised(recall.vocab_size, _places(recall), 2, dtype=torch.float32)
    g = torch.Generator().manual_seed(how.seed)
    history = []
    for step in range(how.steps + 1):
        live = narrow.with_weights(tuple(leaves[:-1]), leaves[-1])
        if step % how.record_every == 0 or step == how.steps:
            with torch.no_grad():
                logits = _spread(live, recall, torch.Generator().manual_seed(how.seed))
                history.append({"step": float(step), **_behaviour(recall, logits, how)})
        batch = recall.sample(how.batch, generator=g)
        found = _spread(live, recall, g)(batch.tokens)
        loss = torch.nn.functional.cross_entropy(found, batch.targets[:, -1])
        with torch.no_grad():
            for leaf, grad in zip(leaves, torch.autograd.grad(loss, leaves), strict=True):
                leaf -= how.rate * grad
    return Outcome(tuple(history))


def _places(recall: AssociativeRecall) -> int:
    """Positions of the ring: three times what the blocks fill, so that distances tell little."""
    return 6 * recall.n_blocks


def _frame(recall: AssociativeRecall) -> tuple[IdealisedModel, Frame]:
    model = idealised(recall.vocab_size, _places(recall), 2)
    return model, model.frame(selections(recall.relation, _places(recall), per_class=False))


def _spread(model: IdealisedModel, recall: AssociativeRecall, g: torch.Generator) -> Logits:
    """The model's logits with blocks at fresh places of the ring."""
    places = _places(recall)

    def logits(tokens: Tensor) -> Tensor:
        where = spread_positions(len(tokens), recall.n_blocks, places, generator=g)
        return model.logits(tokens, where)

    return logits


def _fixed(point: Reduced, recall: AssociativeRecall) -> Logits:
    return lambda tokens: point.logits(tokens, recall.relation)


def _behaviour(recall: AssociativeRecall, logits: Logits, how: Course) -> dict[str, float]:
    found: dict[str, float] = {}
    for axis in AXES:
        g = torch.Generator().manual_seed(how.seed + 1_000_003)
        probe = recall.probe(axis, how.probe, generator=g)
        found[axis] = 0.0 if probe is None else _last_accuracy(logits(probe.tokens), probe)
    return found


def _last_accuracy(logits: Tensor, batch: Batch) -> float:
    full = logits.new_zeros(*batch.tokens.shape, logits.shape[-1])
    full[:, -1] = logits
    return accuracy(full, batch)


def _checked(task: Task) -> AssociativeRecall:
    return require(
        "the competition of ICL and IWL",
        task,
        offsets="consecutive",
        directed=False,
        label_noise=0.0,
        zipf=0.0,
    )
