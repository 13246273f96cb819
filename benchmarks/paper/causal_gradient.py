"""One gradient at initialisation reads the graph: which share of parents, and the closed form.

Chain, pairs and random forests, T = 20, alpha = 0.1, S = 3, 5, 10. 65,536 sequences, and fewer.
Correlations: the gradient against the centred closed form on other sequences, with the query
counted among the frequencies and the read-out's cost c (`full`), without c (`ratio`), and, over
earlier positions alone, against I_chi2 / (i + 1), which it does not follow.
"""

from __future__ import annotations

import torch
from causal_common import Row, graphs, mean, options, run, total

from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.latent_graph import LatentGraph
from imir_detect.theory.causal_gradient import (
    causal_correlation,
    closed_form,
    layer0_gradient,
    mean_ratio,
)
from imir_detect.theory.causal_information import estimated_information

SIZES = (4, 16, 64, 256, 1024, 65536)


def right(graph: LatentGraph, gradient: torch.Tensor) -> int:
    return sum(int(gradient[child, :child].argmax()) == parent for parent, child in graph.edges)


def measure(graph: LatentGraph, symbols: int, seed: int) -> Row:
    task = CausalGraphTask(graph, symbols)
    drawn = task.draw(SIZES[-1], generator=torch.Generator().manual_seed(seed))
    row: Row = {"S": symbols, "edges": len(graph.edges), "roots": len(graph.roots)}
    for n in SIZES:
        gradient = layer0_gradient(drawn.tokens[:n], drawn.rows[:n]).value[0]
        row[f"right_{n}"] = right(graph, gradient)
    other = task.draw(SIZES[-1], generator=torch.Generator().manual_seed(seed + 1))
    q, c = mean_ratio(other.tokens, other.transitions)
    row["pearson_full"] = round(causal_correlation(gradient, closed_form(q, c)), 4)
    row["pearson_ratio"] = round(causal_correlation(gradient, closed_form(q)), 4)
    information = estimated_information(task, seed=seed + 2)
    information /= torch.arange(1, len(graph) + 1)[:, None]
    row["pearson_information"] = round(causal_correlation(gradient, information, strict=True), 4)
    return row


def main() -> None:
    args = options(__doc__)
    everything = graphs(args.trees, args.seed)
    cases = [
        (
            f"{name} S={symbols}",
            lambda g=graph, s=symbols: measure(g, s, args.seed),
        )
        for symbols in (3, 5, 10)
        for name, graph in everything.items()
    ]
    table = run("causal_gradient", cases, args.out)
    for symbols in (3, 5, 10):
        part = [row for row in table if int(row["S"]) == symbols]
        edges = total(part, "edges")
        shares = ", ".join(f"{n}: {total(part, f'right_{n}') / edges:.1%}" for n in SIZES)
        print(f"S={symbols}: share of {edges} parents right by sequences: {shares}")
        for kind in ("full", "ratio", "information"):
            values = [float(row[f"pearson_{kind}"]) for row in part]
            print(f"  Pearson {kind}: mean {mean(part, f'pearson_{kind}'):.4f}, min {min(values)}")


if __name__ == "__main__":
    main()
