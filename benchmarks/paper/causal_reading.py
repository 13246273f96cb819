"""`graph_from_gradient`: is the graph read from data, roots and all, before any model is trained?

16,384 sequences, alpha = 0.1, S = 3, 5, 10: chain, pairs and random forests of 19 nodes, two
parents a node, and every graph of two, three and four nodes. `wrong`: nodes named a parent or a
root that are not; `undecided`: nodes of which nothing is said (of two nodes, nothing can be).
"""

from __future__ import annotations

import itertools

from causal_common import Row, graphs, options, run, total

from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.latent_graph import LatentGraph, halves
from imir_detect.theory.causal_reading import graph_from_gradient

SEQUENCES = 16384
SYMBOLS = (3, 5, 10)


def every_graph(nodes: int) -> list[LatentGraph]:
    """Of single parents."""
    choices = itertools.product(*[range(child + 1) for child in range(nodes)])
    return [
        LatentGraph(tuple(() if p == child else (p,) for child, p in enumerate(parents)))
        for parents in choices
    ]


def measure(read: list[LatentGraph], symbols: int, seed: int) -> Row:
    wrong = undecided = whole = 0
    for graph in read:
        found = graph_from_gradient(CausalGraphTask(graph, symbols), n=SEQUENCES, seed=seed)
        missed = [
            node
            for node, parents in enumerate(found.parents)
            if parents != graph.parents[node] and node not in found.undecided
        ]
        wrong += len(missed)
        undecided += len(found.undecided)
        whole += found.parents == graph.parents and not found.undecided
    return {
        "S": symbols,
        "graphs": len(read),
        "right": whole,
        "nodes": sum(len(graph) for graph in read),
        "wrong": wrong,
        "undecided": undecided,
    }


def main() -> None:
    args = options(__doc__)
    everything = {name: [graph] for name, graph in graphs(args.trees, args.seed).items()}
    everything |= {"halves": [halves(18)]}
    everything |= {f"all of {nodes} nodes": every_graph(nodes) for nodes in (2, 3, 4)}
    cases = [
        (f"{name} S={symbols}", lambda read=read, s=symbols: measure(read, s, args.seed))
        for symbols in SYMBOLS
        for name, read in everything.items()
    ]
    table = run("causal_reading", cases, args.out)
    for small in (False, True):
        part = [row for row in table if row["case"].startswith("all of") == small]
        print(
            f"{'two to four nodes' if small else '19 nodes'}: {total(part, 'right')} of "
            f"{total(part, 'graphs')} graphs right in every node; of {total(part, 'nodes')} nodes "
            f"{total(part, 'wrong')} wrong, {total(part, 'undecided')} undecided"
        )


if __name__ == "__main__":
    main()
