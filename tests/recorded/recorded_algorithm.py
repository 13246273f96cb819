"""Recorded answers: Algorithm 1, all subsets, and the objective of plain weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from plain_answers import said
from recorded_coordinates import generator, kind
from small_models import (
    normal,
    random_weights,
)

from imir_detect.circuits import (
    eliminate,
    exhaustive,
)
from imir_detect.circuits.eliminate import Search, cheap_order, eliminate_literally, estimated_loss
from imir_detect.circuits.exhaustive import Additive, best_subset
from imir_detect.circuits.weights_objective import WeightsObjective, weights_frame


def at_most() -> Any:
    """How many directions may be tried: `LARGEST` of them, and no more."""
    kept = exhaustive.LARGEST
    exhaustive.LARGEST = 3
    try:
        few, many = Additive([0.5] * 3), Additive([0.5] * 4)
        return [kept, *(said(lambda o=o: best_subset(o, budget=1.0)) for o in (few, many))]  # type: ignore[misc]
    finally:
        exhaustive.LARGEST = kept


def eliminated() -> Any:
    prices = [0.3, 0.01, 1.2, 0.04, 0.5, 0.002, 0.9, 0.07, 0.02, 0.6, 0.11, 0.033]
    objective = Additive(prices)
    alive = torch.tensor([True] * 7 + [False] * 5)
    wide = Additive([0.001 * (1 + (37 * i) % 101) for i in range(100)])
    found: dict[str, Any] = {
        "literal": eliminate_literally(objective, budget=0.4),
        "subset": [
            best_subset(objective, budget=0.4),
            best_subset(objective, budget=2.0, among=(0, 2, 4, 6)),
            best_subset(Additive([1.0]), budget=1.0),
        ],
        "none": said(lambda: best_subset(objective, budget=0.1, among=(0, 1))),
        "many": said(lambda: best_subset(wide, budget=1.0, among=range(17))),
        "at most": at_most(),
        "additive": [
            objective.evaluate(alive),
            objective.without(alive, torch.tensor([0, 6])),
            objective.margins(alive),
            objective.margins(torch.ones(12, dtype=torch.bool)),
        ],
        "estimated": estimated_loss(normal(5, seed=1), normal(5, 4, seed=2)),
        "cheap": [cheap_order(normal(5, seed=1), normal(5, 4, seed=2), n) for n in (0, 1, 3, 9)],
    }
    searches = {
        "default": None,
        "literally": Search(exact_below=1000),
        "one by one": Search(exact_below=3, share=0.0),
        "short": Search(exact_below=3, share=0.0, shortlist=1),
        "bulk": Search(exact_below=3, share=0.5),
        "wary bulk": Search(exact_below=3, share=0.5, allowance=0.0),
        "bold bulk": Search(exact_below=3, share=0.9, allowance=5.0),
    }
    for name, how in searches.items():
        steps: list[tuple[int, float]] = []
        for label, on, budget in (("few", objective, 0.4), ("many", wide, 0.35)):
            if label == "many" and name in ("literally", "one by one", "short"):
                continue  # a hundred directions one at a time take a second
            result = eliminate.eliminate(
                on,
                budget=budget,
                search=how,
                progress=lambda n, loss, to=steps: to.append((n, loss)),  # type: ignore[misc]
            )
            found[f"{name}, {label}"] = [result, result.rises, result.circuit(range(100))]
        found[f"{name}, steps"] = steps
    found["all"] = eliminate.eliminate(objective, budget=99.0)
    found["refused"] = [
        said(lambda: eliminate.eliminate(objective, budget=-0.5)),
        said(lambda: eliminate.eliminate(objective, budget=math.nan)),
        said(lambda: Search(shortlist=0)),
        said(lambda: Search(share=1.0)),
        said(lambda: Search(share=-0.1)),
        said(lambda: Search(share=0.0, allowance=0.0, shortlist=1)),
        said(lambda: Search(allowance=-0.1)),
        said(lambda: eliminate.Elimination(1.0, (), (), (0.5, 1.5), (1.0, 1.0), 2.0, 1)),
        said(lambda: eliminate.Elimination(1.5, (), (), (0.5, 1.5), (1.0, 1.0), 2.0, 1)),
    ]
    return found


def objective_of(name: str) -> WeightsObjective:
    weights = {
        "plain": lambda: random_weights(vocab=6, context=4, layers=2, width=8, d_head=4),
        "normed": lambda: random_weights(
            vocab=6, context=4, layers=2, width=8, d_head=4, rms=True, mlp=5, seed=3
        ),
    }[name]()
    tokens = torch.randint(6, (5, 4), generator=generator(1))
    targets = torch.full((5, 4), -100)
    targets[:, -1] = torch.randint(6, (5,), generator=generator(2))
    targets[1, 2] = 4
    relation = torch.tensor([1, 0, -1, -1, -1, -1])
    return WeightsObjective(weights, tokens, targets, relation=relation, shifts=2)


def weights_objective(name: str) -> Callable[[], Any]:
    def answer() -> Any:
        objective = objective_of(name)
        every = torch.ones(objective.size, dtype=torch.bool)
        some = torch.rand(objective.size, generator=generator(5)) < 0.7
        last = every.clone()
        last[-3:] = False
        second = every.clone()
        second[objective.size // 2] = False
        chosen = torch.arange(0, objective.size, 17)
        return {
            "size": objective.size,
            "share": objective.share,
            "names": [str(n) for n in objective.names[::7]],
            "flat": objective.flat,
            "evaluate": [objective.evaluate(a) for a in (every, some, last, second, every)],
            "without": objective.without(some, chosen),
            "after": objective.evaluate(last),
            "logits": objective.logits(some),
            "margins": objective.margins(some),
        }

    return answer


def objective_errors() -> Any:
    weights = random_weights(vocab=6, context=4, layers=1, width=8)
    tokens = torch.zeros(2, 4, dtype=torch.long)
    half = torch.full((2, 4), -100)
    half[0, 1] = 1
    cut = replace(weights, W_U=weights.W_U[:, :5], b_U=weights.b_U[:5])
    noted = replace(kind("parallel, normed after"), notes=("a note", "and another"))
    return [
        said(lambda: WeightsObjective(weights, tokens, half)),
        said(lambda: weights_frame(cut)),
        said(lambda: weights_frame(kind("rotary"))),
        said(lambda: weights_frame(noted)),
        [str(s) for s in weights_frame(weights).selections],
        [str(s) for s in weights_frame(weights, shifts=3).selections],
        weights_frame(weights, relation=torch.tensor([1, 0, -1, -1, -1, -1])).embedding,
    ]


CASES: dict[str, Callable[[], Any]] = {
    "eliminate": eliminated,
    **{f"objective, {name}": weights_objective(name) for name in ("plain", "normed")},
    "objective, errors": objective_errors,
}
