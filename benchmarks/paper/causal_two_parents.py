"""Two parents a node, two heads in layer 0: does every head find a parent of its own?

Parents (i - 1) // 2 and i - 1, three seeds of the training; and random graphs of two parents, three
seeds of the graph. Quick mode: S = 3, 18 nodes and two query tokens, two stages. Full mode: the
source's settings (S = 5, T = 32, Adam at rate 1e-2 from a tiny start, 2^16 steps; its graph alone).
"""

from __future__ import annotations

from causal_common import Row, judge, options, run

from imir_detect.circuits.causal_graph import CausalGraph, recover_causal_graph
from imir_detect.models.disentangled import DisentangledTransformer
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.latent_graph import LatentGraph, halves, random_graph
from imir_detect.theory.causal_reading import graph_from_gradient
from imir_detect.training.causal import GraphRecipe, evaluate_on_graph, train_on_graph
from imir_detect.training.two_stage import TwoStageRecipe, finish, train_two_stage

QUICK = TwoStageRecipe(first_steps=60, second_steps=0)
FULL = GraphRecipe(steps=2**16, batch=1024, rate=1e-2, optimiser="adam", even_rows=0.0)


def own_parent(graph: LatentGraph, read: CausalGraph) -> Row:
    """Share of children for which both heads are right, each keeping to one parent throughout."""
    by_head = [{c.child: c.parent for c in read.candidates if c.head == head} for head in (0, 1)]
    best = 0.0
    for order in ((0, 1), (1, 0)):
        right = [
            all(by_head[head][child] == graph.parents[child][m] for m, head in enumerate(order))
            for child in graph.children
        ]
        best = max(best, sum(right) / len(right))
    return {"both_heads_right": round(best, 4), "n_parents": read.n_parents}


def measure(graph: LatentGraph, symbols: int, seed: int, *, full: bool) -> Row:
    nodes = len(graph)
    task = CausalGraphTask(graph, symbols)
    if full:
        model = DisentangledTransformer(symbols, task.length, (2, 1), init_std=1e-4, seed=seed)
        train_on_graph(task, model, GraphRecipe(**{**vars(FULL), "seed": seed}))
    else:
        model = train_two_stage(task, TwoStageRecipe(**{**vars(QUICK), "seed": seed}))
        finish(task, model, seed=seed)
    read = recover_causal_graph(model.to_weights(), nodes=nodes)
    losses = {key: round(value, 4) for key, value in evaluate_on_graph(task, model).items()}
    before = graph_from_gradient(task, n=16384, seed=seed).parents == graph.parents
    row = {**judge(graph, read), **own_parent(graph, read), **losses}
    return {"S": symbols, **row, "gradient_reads_it": before}


def main() -> None:
    args = options(__doc__)
    name = "causal_two_parents" + ("_full" if args.full else "")
    symbols, nodes = (5, 30) if args.full else (3, 18)
    seeds = range(args.seed, args.seed + 3)
    cases = [
        (
            f"halves S={symbols} T={nodes + 2} seed={seed}",
            lambda seed=seed: measure(halves(nodes), symbols, seed, full=args.full),
        )
        for seed in seeds
    ]
    for seed in () if args.full else seeds:
        graph = random_graph(nodes, 2, root_probability=0.3, seed=seed)
        case = f"random-{seed} S={symbols} T={nodes + 2}"
        cases.append((case, lambda g=graph: measure(g, symbols, args.seed, full=False)))
    for row in run(name, cases, args.out):
        print(
            f"{row['case']}: both heads right at {float(row['both_heads_right']):.1%} of nodes, "
            f"{row['found']} of {row['edges']} edges, {row['false']} false, loss over circuit "
            f"{float(row['over_circuit']):+.1%}, over near-Bayes "
            f"{float(row['over_near_bayes']):+.1%}"
        )


if __name__ == "__main__":
    main()
