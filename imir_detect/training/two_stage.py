"""Two-stage gradient descent, as in the theorem: first layer 0, then layer 1.

Nichani, Damian and Lee (ICML 2024), their Algorithm 1: layer 1 is held at a small identity match,
the read-out copies what layer 1 attended to, and layer 0 descends from zero; then layer 0 is held
and layer 1 descends. The prediction is f + eps, f the attended frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect.models.disentangled import DisentangledTransformer
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.training.causal import GraphRecipe, train_on_graph

HELD = 20.0  # nats by which the last row of layer 0 prefers its query token, with several parents


@dataclass(frozen=True)
class TwoStageRecipe:
    """Plain gradient descent on fresh batches in each stage.

    - `match`: layer 1's identity match at the start.
    - `even_rows`: the gradient of layer 0 at row i is about match I_chi2 / (S T (i + 1)). With
      True, row i of layer 0 is multiplied by S T (i + 1) / (match (S - 1)), tokens' rows as i = 0,
      so that `first_rate` is in nats a step for a child that copies its parent, and every edge
      grows alike: early roots, whose entries are a small share of an edge's, stay behind. False:
      plain gradient descent, as in the theorem, with `first_rate` near 500 at S = 3, T = 20.
    """

    match: float = 2.0
    eps: float = 0.3
    batch: int = 2048
    even_rows: bool = True
    first_steps: int = 40
    first_rate: float = 1.0
    second_steps: int = 150
    second_rate: float = 100.0
    seed: int = 0


def initial_model(task: CausalGraphTask, match: float) -> DisentangledTransformer:
    """The theorem's start: layer 0 at zero, layer 1 a match of token identity, output a copy.

    Layer 1's query reads the token at the last position, its key what layer 0 attended to. With
    k > 1 parents (our extension) layer 0 has k heads; at the last position head m attends to the
    m-th query token and stays there, and layer 1 matches what head m wrote with what it wrote.
    """
    symbols, length, k = task.n_symbols, task.length, task.n_queries
    model = DisentangledTransformer(symbols, length, (k, 1))
    d_0, d_1, _ = model.widths
    eye = torch.eye(symbols)
    with torch.no_grad():
        for head in range(k):
            wrote = slice(d_0 * (1 + head), d_0 * (1 + head) + symbols)
            asks = slice(0, symbols) if k == 1 else wrote
            model.attention[1][0, asks, wrote] = match * eye
            if k > 1:
                model.attention[0][head, -1, symbols + length - k + head] = HELD
        model.readout[d_1 : d_1 + symbols] = eye
    return model


def finish(
    task: CausalGraphTask, model: DisentangledTransformer, *, steps: int = 400, seed: int = 0
) -> None:
    """Train layer 1 and the read-out in place, on softmax(output), with layer 0 held.

    Plain SGD on what the second stage leaves fixed too: the read-out's scale, position terms.
    """
    recipe = GraphRecipe(steps=steps, even_rows=0.0, first_layer=0.0, seed=seed)
    train_on_graph(task, model, recipe)


def train_two_stage(
    task: CausalGraphTask, recipe: TwoStageRecipe | None = None
) -> DisentangledTransformer:
    """A model trained in the two stages. Judge it with `readout="frequency"` and `recipe.eps`."""
    recipe = recipe or TwoStageRecipe()
    model = initial_model(task, recipe.match)
    generator = torch.Generator().manual_seed(recipe.seed)
    rows = _row_factor(task) / recipe.match if recipe.even_rows else torch.ones(model.widths[0], 1)
    stages = (
        (model.attention[0], recipe.first_steps, recipe.first_rate * rows),
        (model.attention[1], recipe.second_steps, torch.tensor(recipe.second_rate)),
    )
    for matrix, steps, rate in stages:
        for _ in range(steps):
            loss = frequency_loss(task, model, recipe.batch, recipe.eps, generator=generator)
            (gradient,) = torch.autograd.grad(loss, matrix)
            with torch.no_grad():
                matrix -= rate * gradient
    return model


def _row_factor(task: CausalGraphTask) -> Tensor:
    """(d_0, 1): S T / (S - 1), times i + 1 for the row of position i; 0 for a row that is held."""
    rows = torch.cat([torch.ones(task.n_symbols), torch.arange(1.0, task.length + 1)])
    if task.n_queries > 1:
        rows[-1] = 0.0
    return task.n_symbols * task.length / (task.n_symbols - 1) * rows[:, None]


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
