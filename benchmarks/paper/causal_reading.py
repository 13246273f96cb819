"""`graph_from_gradient`: is the graph read from data, roots and all, before any model is trained?

16,384 sequences, alpha = 0.1, S = 3, 5, 10: chain, pairs and random forests of 19 nodes, two
parents a node, and every graph of two, three and four nodes. `any`: random graphs of one, two and
three parents, each with its own T = 8 to 30, S = 2 to 10 (at most 4 with three parents), alpha =
0.1 to 1 and share of roots 0 to 0.8. `permuted`: single parents, rows of pi are a permutation's
with noise, so that no two are alike. `wrong`: nodes named a parent or a root that are not;
`undecided`: nodes of which nothing is said (of two nodes, nothing can be).
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import torch
from causal_common import Row, graphs, options, run, total

from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.latent_graph import LatentGraph, halves, random_graph
from imir_detect.tasks.row_priors import Dirichlet
from imir_detect.theory.causal_reading import graph_from_gradient

SEQUENCES = 16384
SYMBOLS = (3, 5, 10)
ANY = {1: 60, 2: 30, 3: 20}  # how many random graphs, by parents


def every_graph(nodes: int) -> list[LatentGraph]:
    """Of single parents."""
    choices = itertools.product(*[range(child + 1) for child in range(nodes)])
    return [
        LatentGraph(tuple(() if p == child else (p,) for child, p in enumerate(parents)))
        for parents in choices
    ]


@dataclass(frozen=True)
class Permuted:
    """All rows of a matrix together: a random permutation, and `noise` spread evenly."""

    noise: float = 0.3

    def sample(
        self, shape: tuple[int, ...], symbols: int, *, generator: torch.Generator
    ) -> torch.Tensor:
        order = torch.rand(*shape, generator=generator).argsort(-1)  # one parent: S rows, S symbols
        sharp = torch.nn.functional.one_hot(order, symbols).double()
        return (1 - self.noise) * sharp + self.noise / symbols

    def posterior_mean(self, counts: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("rows depend on each other; nothing here asks for it")


def any_tasks(parents: int, count: int, seed: int) -> list[CausalGraphTask]:
    """Graphs of every size, with every number of symbols and every alpha."""
    draw = random.Random(seed + parents)
    tasks = []
    while len(tasks) < count:
        nodes = draw.randint(8, 30) - parents
        share = draw.choice((0.0, 0.3, 0.5, 0.8))
        graph = random_graph(nodes, parents, root_probability=share, seed=draw.randrange(2**31))
        symbols = draw.randint(2, 4 if parents > 2 else 10)
        alpha = draw.choice((0.1, 0.2, 0.3, 0.5, 1.0))
        if graph.edges:
            tasks.append(CausalGraphTask(graph, symbols, Dirichlet(alpha)))
    return tasks


def measure(tasks: list[CausalGraphTask], seed: int) -> Row:
    wrong = undecided = whole = 0
    for task in tasks:
        graph = task.graph
        found = graph_from_gradient(task, n=SEQUENCES, seed=seed)
        missed = [
            node
            for node, parents in enumerate(found.parents)
            if parents != graph.parents[node] and node not in found.undecided
        ]
        wrong += len(missed)
        undecided += len(found.undecided)
        whole += found.parents == graph.parents and not found.undecided
    return {
        "S": "/".join(map(str, sorted({task.n_symbols for task in tasks}))),
        "graphs": len(tasks),
        "right": whole,
        "nodes": sum(len(task.graph) for task in tasks),
        "wrong": wrong,
        "undecided": undecided,
    }


def main() -> None:
    args = options(__doc__)
    everything = {name: [graph] for name, graph in graphs(args.trees, args.seed).items()}
    everything |= {"halves": [halves(18)]}
    everything |= {f"all of {nodes} nodes": every_graph(nodes) for nodes in (2, 3, 4)}
    plan: dict[str, list[CausalGraphTask]] = {
        f"{name} S={symbols}": [CausalGraphTask(graph, symbols) for graph in read]
        for symbols in SYMBOLS
        for name, read in everything.items()
    }
    for parents in (1, 2, 3):
        name = f"any, {parents} parent{'s' if parents > 1 else ''}"
        plan[name] = any_tasks(parents, ANY[parents], args.seed)
    plan["permuted"] = [
        CausalGraphTask(random_graph(14, 1, seed=args.seed + s), symbols, Permuted())
        for symbols in (3, 5, 10)
        for s in range(10)
    ]
    cases = [(name, lambda tasks=tasks: measure(tasks, args.seed)) for name, tasks in plan.items()]
    table = run("causal_reading", cases, args.out)
    for kind in ("19 nodes", "two to four nodes", "any", "permuted"):
        part = [row for row in table if kind_of(row["case"]) == kind]
        print(
            f"{kind}: {total(part, 'right')} of "
            f"{total(part, 'graphs')} graphs right in every node; of {total(part, 'nodes')} nodes "
            f"{total(part, 'wrong')} wrong, {total(part, 'undecided')} undecided"
        )


def kind_of(case: str) -> str:
    if case.startswith("all of"):
        return "two to four nodes"
    first = case.split(",")[0]
    return first if first in ("any", "permuted") else "19 nodes"


if __name__ == "__main__":
    main()
