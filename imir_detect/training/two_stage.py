"""Two-stage gradient descent, as in the theorem: first layer 0, then layer 1.

Nichani, Damian and Lee (ICML 2024), their Algorithm 1: layer 1 is held at a small identity match,
the read-out copies what layer 1 attended to, and layer 0 descends from zero; then layer 0 is held
and layer 1 descends. The prediction is f + eps, f the attended frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect.errors import InvalidArgumentError
from imir_detect.models.disentangled import DisentangledTransformer
from imir_detect.tasks.causal_graph import CausalGraphTask


@dataclass(frozen=True)
class TwoStageRecipe:
    """Plain gradient descent on fresh batches in each stage.

    `match` is layer 1's identity match at the start; rates are large because the gradient of
    layer 0 at zero is small: about I_chi2 / (S T (i + 1)) at row i.
    """

    match: float = 1.0
    eps: float = 0.1
    batch: int = 2048
    first_steps: int = 30
    first_rate: float = 500.0
    second_steps: int = 150
    second_rate: float = 30.0
    seed: int = 0


def initial_model(task: CausalGraphTask, match: float) -> DisentangledTransformer:
    """The theorem's start: layer 0 at zero, layer 1 a match of token identity, output a copy.

    Layer 1's query reads the token at the last position, its key what layer 0 attended to.
    Errors: InvalidArgumentError for a graph with several parents, which it does not cover.
    """
    if task.graph.n_parents != 1:
        raise InvalidArgumentError(
            "two-stage training covers one parent per node",
            got=f"{task.graph.n_parents} parents",
            wanted="a graph with single parents",
            todo="use train_on_graph with as many heads as parents",
        )
    symbols = task.n_symbols
    model = DisentangledTransformer(symbols, task.length, (1, 1))
    d_0, d_1, _ = model.widths
    eye = torch.eye(symbols)
    with torch.no_grad():
        model.attention[1][0, :symbols, d_0 : d_0 + symbols] = match * eye
        model.readout[d_1 : d_1 + symbols] = eye
    return model


def train_two_stage(
    task: CausalGraphTask, recipe: TwoStageRecipe | None = None
) -> DisentangledTransformer:
    """A model trained in the two stages. Judge it with `readout="frequency"` and `recipe.eps`."""
    recipe = recipe or TwoStageRecipe()
    model = initial_model(task, recipe.match)
    generator = torch.Generator().manual_seed(recipe.seed)
    stages = (
        (model.attention[0], recipe.first_steps, recipe.first_rate),
        (model.attention[1], recipe.second_steps, recipe.second_rate),
    )
    for matrix, steps, rate in stages:
        for _ in range(steps):
            loss = frequency_loss(task, model, recipe.batch, recipe.eps, generator=generator)
            (gradient,) = torch.autograd.grad(loss, matrix)
            with torch.no_grad():
                matrix -= rate * gradient
    return model


def frequency_loss(
    task: CausalGraphTask,
    model: DisentangledTransformer,
    batch: int,
    eps: float,
    *,
    generator: torch.Generator,
) -> Tensor:
    """Mean of - sum_a pi(a | query) log(f(a) + eps) on fresh sequences (nats)."""
    drawn = task.draw(batch, generator=generator)
    rows = drawn.rows.to(model.readout.dtype)
    return -(rows * (model(drawn.tokens) + eps).log()).sum(-1).mean()
