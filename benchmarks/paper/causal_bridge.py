"""Ordinary TransformerLens models with learned positions: is the graph read from their weights?

Two layers, one head, attention only, d_model 64, trained by AdamW on draws from the target row
(S = 3, T = 20), with and without LayerNorm: chain, pairs and a random forest.
"""

from __future__ import annotations

from causal_common import Row, graphs, judge, options, run, total

from imir_detect.circuits.causal_graph import recover_causal_graph
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.latent_graph import LatentGraph
from imir_detect.training.loop import Recipe, train
from imir_detect.weights.native import ModelSpec, Norm

RECIPE = Recipe(steps=2500, batch=128, rate=5e-3, weight_decay=0.0, evaluate_every=2500)


def measure(graph: LatentGraph, norm: Norm | None, recipe: Recipe) -> Row:
    task = CausalGraphTask(graph, 3)
    spec = ModelSpec(d_vocab=3, n_ctx=task.length, n_layers=2, n_heads=1, d_model=64, norm=norm)
    trained = train(task, spec, recipe, progress=False)
    read = recover_causal_graph(trained.model, nodes=len(graph))
    untrained = recover_causal_graph(spec.boot(recipe.seed), nodes=len(graph))
    return {
        "norm": norm or "none",
        **judge(graph, read),
        "training_loss": round(trained.measured["loss"], 4),
        "edges_untrained": len(untrained.edges),
    }


def main() -> None:
    args = options(__doc__)
    recipe = Recipe(**{**vars(RECIPE), "steps": 20000}) if args.full else RECIPE
    norms: tuple[Norm | None, ...] = (None, "LN")
    cases = [
        (f"{name} norm={norm}", lambda graph=graph, norm=norm: measure(graph, norm, recipe))
        for norm in norms
        for name, graph in graphs(1, args.seed).items()
    ]
    table = run("causal_bridge" + ("_full" if args.full else ""), cases, args.out)
    print(
        f"TransformerLens models: {total(table, 'found')} of {total(table, 'edges')} edges, "
        f"{total(table, 'false')} false, {total(table, 'roots_with_edge')} of "
        f"{total(table, 'roots')} roots with an edge; untrained: "
        f"{total(table, 'edges_untrained')} edges"
    )


if __name__ == "__main__":
    main()
