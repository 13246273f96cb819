"""Draw the figures of latent causal graphs into results/: run the other scripts first for shares.

- causal_attention.svg: true graph, attention, difference, on one random forest and on two parents.
- causal_loss.svg: loss of plain training against both floors.
- causal_shares.svg: share of parents right against sequences, from causal_gradient.csv.
"""

from __future__ import annotations

import torch
from causal_common import NODES, RESULTS, options, read_table

from imir_detect.models.disentangled import DisentangledTransformer
from imir_detect.report.causal import (
    attention_table,
    draw_attention,
    draw_lines,
    loss_table,
    share_table,
)
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.latent_graph import halves, random_forest
from imir_detect.training.causal import GraphRecipe, evaluate_on_graph, train_on_graph
from imir_detect.training.two_stage import TwoStageRecipe, train_two_stage


def main() -> None:
    args = options(__doc__)
    out = args.out or RESULTS
    torch.manual_seed(0)
    forest = random_forest(NODES, seed=args.seed)
    stages = {
        "causal_attention.svg": (forest, TwoStageRecipe(second_steps=0)),
        "causal_attention_two_parents.svg": (
            halves(NODES - 1),
            TwoStageRecipe(first_steps=60, first_rate=2.0, second_steps=0),
        ),
    }
    for name, (graph, recipe) in stages.items():
        model = train_two_stage(CausalGraphTask(graph), recipe)
        draw_attention(attention_table(model.to_weights(), graph)).savefig(out / name)

    task = CausalGraphTask(forest)
    model = DisentangledTransformer(3, task.length, init_std=1e-3)
    history = train_on_graph(task, model, GraphRecipe(steps=2**14 if args.full else 1500))
    floors = evaluate_on_graph(task, model)
    named = {"near-Bayes": floors["near_bayes"], "best two-layer circuit": floors["circuit"]}
    draw_lines(loss_table(history, named), "step", "loss").savefig(out / "causal_loss.svg")

    measured = read_table(RESULTS / "causal_gradient.csv")
    if measured:
        shares = draw_lines(share_table(measured), "sequences", "share right", log_x=True)
        shares.savefig(out / "causal_shares.svg")


if __name__ == "__main__":
    main()
