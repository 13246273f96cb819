"""Additive residual, random embeddings and values, an MLP a layer: is the graph read all the same?

Plain SGD, S = 3, T = 20, d_model 64: chain, pairs and three random forests (ten in full mode).
"""

from __future__ import annotations

from causal_common import Row, graphs, judge, options, run, total

from imir_detect.circuits.causal_graph import recover_causal_graph
from imir_detect.models.disentangled_mlp import AdditiveTransformer
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.latent_graph import LatentGraph
from imir_detect.training.causal import GraphRecipe, evaluate_on_graph, train_on_graph

RECIPE = GraphRecipe(steps=1500, rate=0.3, even_rows=0.0, first_layer=10.0)


def measure(graph: LatentGraph) -> Row:
    task = CausalGraphTask(graph, 3)
    model = AdditiveTransformer(3, task.length, (1, 1), init_std=1e-2)
    train_on_graph(task, model, RECIPE)
    read = recover_causal_graph(model.to_weights(), nodes=len(graph))
    losses = {key: round(value, 4) for key, value in evaluate_on_graph(task, model).items()}
    return {**judge(graph, read), **losses}


def main() -> None:
    args = options(__doc__)
    chosen = graphs(10 if args.full else 3, args.seed)
    cases = [(name, lambda graph=graph: measure(graph)) for name, graph in chosen.items()]
    table = run("causal_mlp", cases, args.out)
    found, edges = total(table, "found"), total(table, "edges")
    print(
        f"MLP variant: {found} of {edges} edges ({found / edges:.1%}), "
        f"{total(table, 'false')} false, {total(table, 'roots_with_edge')} of "
        f"{total(table, 'roots')} roots with an edge"
    )


if __name__ == "__main__":
    main()
