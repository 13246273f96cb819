"""Train a small model on a task: seeded, resumable after a kill, stopped early at a target.

A run killed at any moment resumes from its last checkpoint to the same weights, bit for bit on
one machine with one thread count: the checkpoint holds parameters, optimiser state and the data
generator's state. What was done since is done again, and nothing twice.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save

from imir_detect.arguments import shown
from imir_detect.errors import InvalidArgumentError
from imir_detect.files import hold
from imir_detect.progress import bar
from imir_detect.strict import COUNT, NUMBER, POSITIVE, Is
from imir_detect.tasks.base import Task, measure
from imir_detect.training.checkpoint import Checkpoint, readable
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import load_parameters, parameters

if TYPE_CHECKING:
    from transformer_lens import TransformerBridge

CHECKPOINT_FILE = "checkpoint.safetensors"
EVALUATION_SEED = 1_000_003  # keeps evaluation data apart from training data of small seeds

KINDS: dict[str, Is] = {
    **dict.fromkeys(("steps", "batch", "evaluate_every"), POSITIVE),
    "rate": Is(lambda v: NUMBER.holds(v) and v >= 0, "a number of at least 0"),
    "weight_decay": Is(lambda v: NUMBER.holds(v) and v >= 0, "a number of 0 or more"),
    "warmup": COUNT,
    "tail": Is(lambda v: NUMBER.holds(v) and 0 <= v < 1, "a number in [0, 1)"),
    "seed": COUNT,
}


@dataclass(frozen=True)
class Recipe:
    """How to train. AdamW with linear warm-up, then constant, then a linear tail to zero.

    - `stop_at`: {"accuracy" | "icl_accuracy" | "iwl_accuracy": value}; the run ends when all are
      reached (measured on 512 fresh sequences every `evaluate_every` steps). Empty: never.
    - `rate`: 0 leaves the model fresh. `tail`: share of the steps, at the end, over which the rate
      falls to zero.
    """

    steps: int = 2500
    batch: int = 128
    rate: float = 3e-3
    weight_decay: float = 0.01
    warmup: int = 50
    tail: float = 0.2
    evaluate_every: int = 250
    stop_at: dict[str, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        wrong = [
            f"{name}={shown(getattr(self, name))} is not {kind.wanted}"
            for name, kind in KINDS.items()
            if not kind.holds(getattr(self, name))
        ]
        if wrong:
            raise InvalidArgumentError(
                "this recipe cannot run",
                got="; ".join(wrong),
                wanted="at least 1 of steps, batch and evaluate_every, a rate of at least 0, and a "
                "tail in [0, 1)",
                todo="mend the recipe",
            )

    def rate_at(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        warm = min(1.0, (step + 1) / max(1, self.warmup))
        left = (self.steps - step) / max(1.0, self.tail * self.steps)
        return self.rate * min(warm, left, 1.0)


@dataclass
class TrainingRun:
    """A trained model with its history: one row {"step", "loss", accuracies ...} an evaluation."""

    model: TransformerBridge
    spec: ModelSpec
    history: list[dict[str, float]]
    reached: bool

    @property
    def measured(self) -> dict[str, float]:
        """The last evaluation."""
        return self.history[-1] if self.history else {}


def train(
    task: Task,
    spec: ModelSpec,
    recipe: Recipe,
    *,
    folder: Path | str | None = None,
    progress: bool = True,
    start: Mapping[str, torch.Tensor] | None = None,
) -> TrainingRun:
    """Train a model of `spec` on `task`; with `folder`, checkpoint there and resume from it.

    The loss is the cross-entropy (nats) of the asked positions. Training begins from the
    parameters `start` (by plain name, as `parameters` gives them), else from a fresh model of the
    recipe's seed. A folder that holds a checkpoint of another task, specification, recipe or start
    is refused, and one that another run works in.
    """
    check_fit(task, spec)
    if folder is None:
        return _train(task, spec, recipe, None, progress, start)
    with hold(Path(folder)):
        return _train(task, spec, recipe, Path(folder) / CHECKPOINT_FILE, progress, start)


def _train(
    task: Task,
    spec: ModelSpec,
    recipe: Recipe,
    file: Path | None,
    progress: bool,
    begin: Mapping[str, torch.Tensor] | None,
) -> TrainingRun:
    identity: dict[str, Any] = {"task": describe(task), "spec": asdict(spec)}
    identity["recipe"] = asdict(recipe)
    bridge = spec.boot(recipe.seed)
    if begin is not None:
        load_parameters(bridge, begin)
        held = save({name: tensor.detach().contiguous() for name, tensor in begin.items()})
        identity["start"] = hashlib.sha256(held).hexdigest()
    bridge.train()
    optimiser = torch.optim.AdamW(
        bridge.parameters(), lr=recipe.rate, weight_decay=recipe.weight_decay
    )
    generator = torch.Generator().manual_seed(recipe.seed)
    start = 0
    history: list[dict[str, float]] = []
    if file is not None and file.exists():
        start, history = _restore(file, identity, bridge, optimiser, generator)

    reached = _reached(history, recipe)
    steps = range(start, start if reached else recipe.steps)
    shown = bar(steps, what="training", initial=start, total=recipe.steps, show=progress)
    for step in shown:
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate_at(step)
        loss = _step(bridge, task, recipe.batch, optimiser, generator)
        if (step + 1) % recipe.evaluate_every == 0 or step + 1 == recipe.steps:
            _check_finite(loss, step)
            row = {"step": float(step + 1), "loss": loss, **evaluate(bridge, task, n=512)}
            history.append(row)
            reached = _reached(history, recipe)
            if file is not None:
                _checkpoint(file, identity, step + 1, history, bridge, optimiser, generator)
            if reached:
                break
    bridge.eval()
    return TrainingRun(bridge, spec, history, reached)


def evaluate(
    bridge: TransformerBridge, task: Task, *, n: int = 2048, seed: int = 0
) -> dict[str, float]:
    """`measure` of a bridge on fresh sequences. Mode and gradients are as before."""
    return measure(
        task,
        lambda tokens, positions: _logits(bridge, tokens, positions),
        n=n,
        seed=EVALUATION_SEED + seed,
    )


def describe(task: Task) -> dict[str, Any]:
    """A task as JSON: its registered name and its knobs."""
    return {"name": task.name, "knobs": asdict(task)}  # type: ignore[call-overload]


def _logits(
    bridge: TransformerBridge, tokens: torch.Tensor, positions: torch.Tensor | None
) -> torch.Tensor:
    # The module under the bridge: the same parameters without the hooks' bookkeeping.
    return bridge.original_model(tokens, position_ids=positions)


def _step(
    bridge: TransformerBridge,
    task: Task,
    size: int,
    optimiser: torch.optim.Optimizer,
    generator: torch.Generator,
) -> float:
    batch = task.sample(size, generator=generator)
    logits = _logits(bridge, batch.tokens, batch.positions)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return float(loss.detach())


def _reached(history: list[dict[str, float]], recipe: Recipe) -> bool:
    if not history or not recipe.stop_at:
        return False
    return all(history[-1].get(name, 0.0) >= value for name, value in recipe.stop_at.items())


def _check_finite(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise InvalidArgumentError(
            "training diverged",
            got=f"a loss of {loss} at step {step}",
            wanted="a finite loss",
            todo="lower the rate",
        )


def check_fit(task: Task, spec: ModelSpec) -> None:
    """Raise InvalidArgumentError where a model of `spec` lacks the task's tokens or positions."""
    if task.vocab_size != spec.d_vocab or task.n_positions > spec.n_ctx:
        raise InvalidArgumentError(
            "the model does not fit the task",
            got=f"d_vocab={spec.d_vocab}, n_ctx={spec.n_ctx}",
            wanted=f"d_vocab={task.vocab_size}, n_ctx of at least {task.n_positions}",
            todo="build the ModelSpec from task.vocab_size and task.n_positions",
        )


# -- checkpoints ----------------------------------------------------------------------------------


def _checkpoint(
    file: Path,
    identity: dict[str, Any],
    step: int,
    history: list[dict[str, float]],
    bridge: TransformerBridge,
    optimiser: torch.optim.Optimizer,
    generator: torch.Generator,
) -> None:
    own = parameters(bridge)
    tensors: dict[str, torch.Tensor] = {f"parameter/{name}": p for name, p in own.items()}
    for name, p in own.items():
        for key, value in optimiser.state[p].items():
            tensors[f"optimiser/{key}/{name}"] = value
    tensors["generator"] = generator.get_state()
    Checkpoint(identity, {"step": step, "history": history}, tensors).write(file)


def _restore(
    file: Path,
    identity: dict[str, Any],
    bridge: TransformerBridge,
    optimiser: torch.optim.Optimizer,
    generator: torch.Generator,
) -> tuple[int, list[dict[str, float]]]:
    found = Checkpoint.read(file, identity)
    own = parameters(bridge)
    with readable(file):
        load_parameters(bridge, {k: found.tensors[f"parameter/{k}"] for k in own})
        for name, p in own.items():
            keys = ("step", "exp_avg", "exp_avg_sq")
            optimiser.state[p] = {k: found.tensors[f"optimiser/{k}/{name}"] for k in keys}
        generator.set_state(found.tensors["generator"])
        return int(found.state["step"]), list(found.state["history"])
