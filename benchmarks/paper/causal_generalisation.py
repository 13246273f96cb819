"""A trained model, on matrices from other priors than its own.

`single` (default): trained on Dirichlet(0.1) rows, S = 3 and 10. `mixed`: on rows of which each
draws its alpha from 0.05, 0.1, 0.2, 0.5 and 1. `each`: five models a graph, each on one of these
alphas. The latter two at S = 3, but for the full mode. Chain, pairs and random forests (--trees,
here 3 by default). Compared, on each prior, with near-Bayes for that prior; with the best two-layer
circuit of the training prior (`circuit`, fitted once, as the model was); and with the one refitted
to the prior (`refitted`). `rescaled`: the model's own output times the one number that is best for
the prior, to tell how much of the loss is confidence learned elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from causal_common import Row, graphs, options, run
from torch import Tensor

from imir_detect.models.disentangled import DisentangledTransformer
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.causal_predictors import TwoLayerCircuit, best_circuit, near_bayes, row_loss
from imir_detect.tasks.latent_graph import LatentGraph
from imir_detect.tasks.row_priors import Dirichlet, DirichletMixture, Peaked, RowPrior
from imir_detect.training.causal import EVALUATION_SEED, predict
from imir_detect.training.two_stage import finish, train_two_stage

ALPHAS = (0.05, 0.1, 0.2, 0.5, 1.0)
PRIORS: dict[str, RowPrior] = {
    **{f"alpha {a}": Dirichlet(a) for a in ALPHAS},
    "mixture of 0.1 and 1": DirichletMixture((0.1, 1.0)),
    "peaked, noise 0.2": Peaked(0.2),
}
TRAINED_ON: dict[str, dict[str, RowPrior]] = {
    "single": {"alpha 0.1": PRIORS["alpha 0.1"]},
    "mixed": {"mixed alpha": DirichletMixture(ALPHAS)},
    "each": {f"alpha {a}": PRIORS[f"alpha {a}"] for a in ALPHAS},
}
FORESTS = 3


@cache
def refitted(task: CausalGraphTask) -> TwoLayerCircuit:
    return best_circuit(task, seed=1)


def rescaled(task: CausalGraphTask, model: DisentangledTransformer, tokens: Tensor) -> Tensor:
    """Predictions with the output's scale fitted to the prior, on sequences of another seed."""
    drawn = task.draw(4096, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        fitted, output = model(drawn.tokens).double(), model(tokens).double()
    scales = torch.linspace(0.1, 2.0, 39, dtype=torch.float64)
    losses = torch.tensor([row_loss(drawn.rows, (s * fitted).softmax(-1)) for s in scales])
    return (scales[losses.argmin()] * output).softmax(-1)


def measure(graph: LatentGraph, symbols: int, prior: RowPrior) -> list[Row]:
    task = CausalGraphTask(graph, symbols, prior)
    model = train_two_stage(task)
    finish(task, model)
    circuit = best_circuit(task)
    rows: list[Row] = []
    for other in PRIORS.values():
        there = replace(task, prior=other)
        drawn = there.draw(16384, generator=torch.Generator().manual_seed(EVALUATION_SEED))
        losses = {
            "loss": row_loss(drawn.rows, predict(model, drawn.tokens)),
            "rescaled": row_loss(drawn.rows, rescaled(there, model, drawn.tokens)),
            "near_bayes": row_loss(drawn.rows, near_bayes(there, drawn.tokens)),
            "circuit": row_loss(drawn.rows, circuit.probabilities(drawn.tokens)),
            "refitted": row_loss(drawn.rows, refitted(there).probabilities(drawn.tokens)),
        }
        row: Row = {name: round(value, 4) for name, value in losses.items()}
        for name in ("near_bayes", "circuit", "refitted"):
            row[f"over_{name}"] = round(losses["loss"] / losses[name] - 1, 4)
        row["rescaled_over_refitted"] = round(losses["rescaled"] / losses["refitted"] - 1, 4)
        rows.append(row)
    return rows


def worst(table: list[dict[str, str]], column: str, *, home: bool | None = None) -> str:
    """The largest of a column over alphas 0.05 to 1; `home`: on the prior trained on, or others."""
    part = [
        row
        for row in table
        if row["prior"].startswith("alpha")
        and (home is None or (row["prior"] == row["trained_on"]) == home)
    ]
    row = max(part, key=lambda r: float(r[column]))
    return f"{float(row[column]):+.1%} ({row['case']})"


def main() -> None:
    args = options(__doc__, methods=tuple(TRAINED_ON))
    name = "causal_generalisation" + ("" if args.method == "single" else f"_{args.method}")
    cases = []
    for symbols in (3, 10) if args.method == "single" or args.full else (3,):
        for which, graph in graphs(min(args.trees, FORESTS), args.seed).items():
            for home, prior in TRAINED_ON[args.method].items():
                trained: list[Row] = []

                def one(
                    index: int,
                    graph: LatentGraph = graph,
                    symbols: int = symbols,
                    home: str = home,
                    prior: RowPrior = prior,
                    trained: list[Row] = trained,
                ) -> Row:
                    if not trained:  # one training for all priors
                        trained.extend(measure(graph, symbols, prior))
                    where = list(PRIORS)[index]
                    return {"S": symbols, "trained_on": home, "prior": where, **trained[index]}

                for index, other in enumerate(PRIORS):
                    case = f"{which} S={symbols}, {home} to {other}"
                    cases.append((case, lambda one=one, index=index: one(index)))
    table = run(name, cases, args.out)
    print("alpha 0.05 to 1, worst case of each:")
    print("  over the training prior's circuit", worst(table, "over_circuit"))
    print("  over the circuit refitted to the prior", worst(table, "over_refitted"))
    print("  the same, output rescaled", worst(table, "rescaled_over_refitted"))
    if args.method == "each":
        print("  on the prior trained on:", worst(table, "over_refitted", home=True))
        print("  on the others:", worst(table, "over_refitted", home=False))


if __name__ == "__main__":
    main()
