"""Ordinary TransformerLens models with learned positions: is the graph read from their weights?

Two layers, one head, attention only, d_model 64, trained by Adam on whole target rows (S = 3):
chain, pairs and two random forests of 11 nodes (T = 12), a chain and a forest of 19 nodes (T = 20),
the short ones with another seed, and with LayerNorm. In full mode ten times the steps. A model has
*learned* if its loss is no more than the best two-layer circuit's; with LayerNorm 1,500 steps are
too few for that. Those that have not are told apart.
"""

from __future__ import annotations

import torch
from causal_common import Row, judge, options, run, total

from imir_detect.circuits.causal_graph import recover_causal_graph
from imir_detect.pipeline import detect_circuits
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.causal_predictors import best_circuit, near_bayes, row_loss
from imir_detect.tasks.latent_graph import LatentGraph, chain, pairs, random_forest
from imir_detect.training.causal import EVALUATION_SEED, train_lens_on_graph
from imir_detect.weights.native import ModelSpec, Norm

STEPS = 1500
SHORT, LONG = 11, 19  # nodes


def measure(graph: LatentGraph, norm: Norm | None, seed: int, steps: int) -> Row:

    task = CausalGraphTask(graph, 3)
    spec = ModelSpec(d_vocab=3, n_ctx=task.length, n_layers=2, n_heads=1, d_model=64, norm=norm)
    untrained = recover_causal_graph(spec.boot(seed), nodes=len(graph))
    bridge = spec.boot(seed)
    loss = train_lens_on_graph(task, bridge, steps=steps, seed=seed)
    read = recover_causal_graph(bridge, nodes=len(graph))
    drawn = task.draw(8192, generator=torch.Generator().manual_seed(EVALUATION_SEED))
    circuit = row_loss(drawn.rows, best_circuit(task).probabilities(drawn.tokens))
    best = {(c.parent, c.child) for c in read.candidates}
    report = detect_circuits(bridge)
    graph_found = report.meta["latent_graph"] or {"edges": []}
    named = {(e["parent"], e["child"]) for e in graph_found["edges"]}
    working = [c for c in report.circuits if c.works and c.kind == "induction"]
    return {
        "nodes": len(graph),
        "norm": norm or "none",
        "seed": seed,
        **judge(graph, read),
        "largest_is_parent": len(set(graph.edges) & best),
        "loss": round(loss, 4),
        "circuit": round(circuit, 4),
        "near_bayes": round(row_loss(drawn.rows, near_bayes(task, drawn.tokens)), 4),
        "edges_untrained": len(untrained.edges),
        "label": report.label,
        "induction_strength": round(max((c.strength for c in working), default=0.0), 3),
        "edges_in_report": len(named & set(graph.edges)),
        "false_in_report": len(named - set(graph.edges)),
    }


def main() -> None:
    args = options(__doc__)
    steps = 10 * STEPS if args.full else STEPS

    short = {"chain": chain(SHORT), "pairs": pairs(SHORT)}
    short |= {f"forest-{s}": random_forest(SHORT, seed=s) for s in range(args.seed, args.seed + 2)}
    long = {"chain": chain(LONG), f"forest-{args.seed}": random_forest(LONG, seed=args.seed)}
    plan: list[tuple[str, LatentGraph, Norm | None, int]] = []
    plan += [(name, graph, None, 0) for name, graph in short.items()]
    plan += [(name, graph, None, 0) for name, graph in long.items()]
    plan += [(name, graph, None, 1) for name, graph in short.items()]
    plan += [(name, graph, "LN", 0) for name, graph in short.items()]
    cases = [
        (
            f"{name} T={len(graph) + 1} norm={norm or 'none'} seed={seed}",
            lambda graph=graph, norm=norm, seed=seed: measure(graph, norm, seed, steps),
        )
        for name, graph, norm, seed in plan
    ]
    table = run("causal_bridge" + ("_full" if args.full else ""), cases, args.out)
    for name, learned in (("learned", True), ("not learned", False)):
        part = [r for r in table if (float(r["loss"]) <= float(r["circuit"])) == learned]
        if part:
            print(f"{name}: {told(part)}")


def told(table: list[dict[str, str]]) -> str:
    named = [
        r for r in table if float(r["induction_strength"]) > 0.5 and r["edges_in_report"] != "0"
    ]
    return (
        f"{len(table)} models, {total(table, 'found')} of {total(table, 'edges')} edges, "
        f"{total(table, 'false')} false, {total(table, 'roots_with_edge')} of "
        f"{total(table, 'roots')} roots with an edge; the parent is the largest entry of "
        f"{total(table, 'largest_is_parent')} rows; untrained: {total(table, 'edges_untrained')} "
        f"edges; detect_circuits names an induction circuit with its graph in "
        f"{len(named)} of {len(table)} models ({total(table, 'false_in_report')} false edges)"
    )


if __name__ == "__main__":
    main()
