"""Untrained models have no graph: how often a row stands out from its null, and how often an edge.

Native TransformerLens models of several shapes, norms and initial scales, and disentangled ones.
"""

from __future__ import annotations

from causal_common import NODES, Row, options, run, total

from imir_detect.circuits.causal_graph import CausalGraph, recover_causal_graph
from imir_detect.models.disentangled import DisentangledTransformer
from imir_detect.weights.native import ModelSpec

SHAPES: dict[str, dict[str, object]] = {
    "d64 h4": {"d_model": 64, "n_heads": 4},
    "d32 h4 LN": {"d_model": 32, "n_heads": 4, "norm": "LN"},
    "d64 h8 RMS": {"d_model": 64, "n_heads": 8, "norm": "RMS"},
    "d16 h2": {"d_model": 16, "n_heads": 2},
    "d64 h4 init 0.5": {"d_model": 64, "n_heads": 4, "init_range": 0.5},
    "d64 h4 init 1": {"d_model": 64, "n_heads": 4, "init_range": 1.0},
}


def count(graphs: list[CausalGraph]) -> Row:
    rows = [(c, c in graph.edges) for graph in graphs for c in graph.candidates]
    return {
        "rows": len(rows),
        "above_99th": sum(c.p_value < 0.01 for c, _ in rows),
        "edges": sum(edge for _, edge in rows),
    }


def bridges(shape: dict[str, object], models: int, seed: int) -> Row:
    specs = ModelSpec(d_vocab=5, n_ctx=NODES + 1, n_layers=1, **shape)  # type: ignore[arg-type]
    return count([recover_causal_graph(specs.boot(seed + s)) for s in range(models)])


def disentangled(std: float, models: int, seed: int) -> Row:
    made = [
        DisentangledTransformer(3, NODES + 1, (4, 1), init_std=std, seed=seed + s)
        for s in range(models)
    ]
    return count([recover_causal_graph(model.to_weights()) for model in made])


def main() -> None:
    args = options(__doc__)
    models = 40 if args.full else 8
    cases = [
        (name, lambda shape=shape: bridges(shape, models, args.seed))
        for name, shape in SHAPES.items()
    ]
    cases += [
        (f"disentangled h4 init {std}", lambda std=std: disentangled(std, models, args.seed))
        for std in (0.01, 1.0, 4.0)
    ]
    table = run("causal_null", cases, args.out)
    rows = total(table, "rows")
    print(
        f"{rows} rows of untrained models: {total(table, 'above_99th') / rows:.2%} above the "
        f"null's 99th percentile, {total(table, 'edges') / rows:.2%} taken for an edge"
    )


if __name__ == "__main__":
    main()
