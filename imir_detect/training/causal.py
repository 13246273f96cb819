"""Train small transformers on a causal-graph task, and measure them against both floors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from imir_detect.errors import InvalidArgumentError
from imir_detect.models.disentangled import DisentangledTransformer
from imir_detect.models.disentangled_mlp import AdditiveTransformer
from imir_detect.progress import bar
from imir_detect.tasks.causal_graph import CausalGraphTask, GraphSample
from imir_detect.tasks.causal_predictors import Readout, best_circuit, near_bayes, row_loss

EVALUATION_SEED = 1_000_003  # keeps evaluation data apart from training data of small seeds
GraphModel: TypeAlias = DisentangledTransformer | AdditiveTransformer


@dataclass(frozen=True)
class GraphRecipe:
    """Gradient descent on all weights, cosine decay to zero.

    - `optimiser`: "sgd" (Nesterov momentum) or "adam".
    - `weight_decay`: lambda of the penalty lambda / 2 |A_0|^2 on layer 0. What roots attend to is
      worth little to the loss, and the penalty keeps them even; edges are worth much.
    - `even_rows`: layer 0's gradient carries a factor 1 / (i + 1) at position i, so that early
      roots drift before late edges are learned; row i of its matrices is multiplied by
      even_rows (i + 1). 0: plain gradient descent, which gets there too, with more steps. Only
      where positions are one-hot.
    - `first_layer`: factor on the rate of layer 0's matrices as a whole.
    - `target`: the whole row, or one draw from it.
    """

    steps: int = 1500
    batch: int = 256
    rate: float = 1.0
    optimiser: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.9
    even_rows: float = 0.5
    first_layer: float = 1.0
    weight_decay: float = 0.0
    target: Literal["row", "sample"] = "row"
    seed: int = 0

    def __post_init__(self) -> None:
        if (
            min(self.steps, self.batch) < 1
            or self.optimiser not in ("sgd", "adam")
            or self.target not in ("row", "sample")
        ):
            raise InvalidArgumentError(
                "this recipe cannot run",
                got=f"steps={self.steps}, batch={self.batch}, optimiser={self.optimiser!r}, "
                f"target={self.target!r}",
                wanted="at least 1 step and 1 sequence, 'sgd' or 'adam', 'row' or 'sample'",
                todo="mend the recipe",
            )


def train_on_graph(
    task: CausalGraphTask, model: GraphModel, recipe: GraphRecipe, *, progress: bool = False
) -> list[dict[str, float]]:
    """Train `model` in place on softmax(output) against the target rows.

    Returns the mean loss (nats) of every hundred steps: [{"step", "loss"}].
    """
    _check_fit(task, model, recipe)
    first = list(model.attention[:1])
    rest = [p for p in model.parameters() if p is not first[0]]
    groups = [
        {"params": first, "factor": recipe.first_layer},
        {"params": rest, "factor": 1.0},
    ]
    optimiser: torch.optim.Optimizer = (
        torch.optim.SGD(groups, lr=recipe.rate, momentum=recipe.momentum, nesterov=True)
        if recipe.optimiser == "sgd"
        else torch.optim.Adam(groups, lr=recipe.rate)
    )
    row_factor = _row_factor(model, recipe.even_rows) if recipe.even_rows else None
    generator = torch.Generator().manual_seed(recipe.seed)
    history, recent = [], []
    for step in bar(range(recipe.steps), what="training", show=progress):
        decay = 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate * decay * group["factor"]
        drawn = task.draw(recipe.batch, generator=generator)
        target = _target(drawn, recipe.target, generator=generator)
        loss = -(target * model(drawn.tokens).log_softmax(-1)).sum(-1).mean()
        penalty = 0.5 * recipe.weight_decay * first[0].square().sum()
        optimiser.zero_grad(set_to_none=True)
        (loss + penalty).backward()
        if row_factor is not None and first[0].grad is not None:
            first[0].grad *= row_factor
        optimiser.step()
        recent.append(float(loss.detach()))
        if (step + 1) % 100 == 0 or step + 1 == recipe.steps:
            history.append({"step": float(step + 1), "loss": sum(recent) / len(recent)})
            recent = []
    return history


def train_lens_on_graph(
    task: CausalGraphTask,
    bridge: Any,
    *,
    steps: int = 1500,
    batch: int = 128,
    rate: float = 1e-2,
    seed: int = 0,
) -> float:
    """Train a TransformerLens model in place on whole target rows, with Adam and a cosine decay.

    Whole rows carry far less noise than draws from them (`training.loop.train`), so edges of little
    use to the loss are learned sooner. Returns the mean loss (nats) of the last hundred steps.

    >>> from imir_detect.weights.native import ModelSpec
    >>> task = CausalGraphTask()
    >>> spec = ModelSpec(task.n_symbols, task.length, n_layers=2, n_heads=1, d_model=64)
    >>> loss = train_lens_on_graph(task, spec.boot(0), steps=1500)  # doctest: +SKIP
    """
    inner = bridge.original_model  # the module under the bridge, without the hooks' bookkeeping
    optimiser = torch.optim.Adam(bridge.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(seed)
    bridge.train()
    losses = []
    for step in range(steps):
        warm = min(1.0, (step + 1) / 50)
        for group in optimiser.param_groups:
            group["lr"] = rate * warm * 0.5 * (1 + math.cos(math.pi * step / steps))
        drawn = task.draw(batch, generator=generator)
        loss = -(drawn.rows.float() * inner(drawn.tokens)[:, -1].log_softmax(-1)).sum(-1).mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    bridge.eval()
    return sum(losses[-100:]) / len(losses[-100:])


@torch.no_grad()
def predict(
    model: GraphModel, tokens: Tensor, *, readout: Readout = "softmax", eps: float = 0.0
) -> Tensor:
    """Predicted rows: softmax(output), or (output + eps) scaled to sum to one ("frequency")."""
    output = model(tokens).double()
    if readout == "softmax":
        return output.softmax(-1)
    raised = (output + eps).clamp(min=1e-12)
    return raised / raised.sum(-1, keepdim=True)


def evaluate_on_graph(
    task: CausalGraphTask,
    model: GraphModel,
    *,
    readout: Readout = "softmax",
    eps: float = 0.0,
    n: int = 16384,
    seed: int = 0,
) -> dict[str, float]:
    """Losses (nats, against whole rows) on fresh sequences.

    {"loss", "circuit", "near_bayes", "over_circuit", "over_near_bayes"}; the last two are the
    model's loss over the floor's, minus 1. The circuit is fitted on other sequences.
    """
    drawn = task.draw(n, generator=torch.Generator().manual_seed(EVALUATION_SEED + seed))
    circuit = best_circuit(task, readout=readout, n=n, seed=2 * EVALUATION_SEED + seed)
    predicted = predict(model, drawn.tokens, readout=readout, eps=eps)
    loss = row_loss(drawn.rows, predicted)
    floors = {
        "circuit": row_loss(drawn.rows, circuit.probabilities(drawn.tokens)),
        "near_bayes": row_loss(drawn.rows, near_bayes(task, drawn.tokens)),
    }
    return {
        "loss": loss,
        **floors,
        **{f"over_{name}": loss / floor - 1 for name, floor in floors.items()},
    }


def _target(drawn: GraphSample, kind: str, *, generator: torch.Generator) -> Tensor:
    if kind == "row":
        return drawn.rows.float()
    picked = torch.multinomial(drawn.rows, 1, generator=generator)[:, 0]
    return torch.nn.functional.one_hot(picked, drawn.rows.shape[1]).float()


def _row_factor(model: GraphModel, even_rows: float) -> Tensor:
    """(d_0, 1): 1 for rows of tokens, even_rows (i + 1) for that of position i."""
    places = even_rows * torch.arange(1, model.length + 1, dtype=model.readout.dtype)
    return torch.cat([torch.ones(model.n_symbols), places])[:, None]


def _check_fit(task: CausalGraphTask, model: GraphModel, recipe: GraphRecipe) -> None:
    if recipe.even_rows and not isinstance(model, DisentangledTransformer):
        raise InvalidArgumentError(
            "even_rows needs a model whose positions are one-hot",
            got=f"{type(model).__name__} with even_rows={recipe.even_rows}",
            wanted="a DisentangledTransformer, or even_rows=0",
            todo="set even_rows=0 and raise first_layer instead",
        )
    if (model.n_symbols, model.length) != (task.n_symbols, task.length):
        raise InvalidArgumentError(
            "the model does not fit the task",
            got=f"n_symbols={model.n_symbols}, length={model.length}",
            wanted=f"n_symbols={task.n_symbols}, length={task.length}",
            todo="build the model from task.n_symbols and task.length",
        )
