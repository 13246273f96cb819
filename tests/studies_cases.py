"""Small sources of the figures of studies, written by hand."""

from typing import Any

from imir_detect.benchmark.run import METRICS
from imir_detect.circuits.causal_graph import CausalEdge, CausalGraph

EDGES = (
    CausalEdge(0, 1, confidence=0.9, effect=4.0, p_value=0.001, head=0),
    CausalEdge(0, 2, confidence=0.7, effect=3.0, p_value=0.004, head=0),
)
GRAPH = CausalGraph(
    3,
    EDGES,
    (*EDGES, CausalEdge(1, 2, 0.1, 0.2, 0.6, head=1)),
    (0.1, 0.1),
    "weights",
    notes=("a note",),
)


def cell(f_r: float, f_v: float, predicted: str, trained: str) -> dict[str, Any]:
    """A row as `outcome_row` makes it."""
    return {
        "f_r": f_r, "f_v": f_v, "b": 1, "predicted": predicted, "trained": trained,
        "agree": predicted == trained, "on border": f_r > 0.5,
        "predicted icl": 0.9, "predicted iwl": 0.1, "trained icl": 0.8, "trained iwl": 0.2,
        "icl lost, predicted": 0.0, "icl lost, trained": 0.0,
    }  # fmt: skip


PHASE = [cell(0.0, 0.0, "iwl", "iwl"), cell(0.6, 0.0, "both", "icl"), cell(0.0, 0.5, "none", "iwl")]


def run(case: str, method: str, auc: float | None, seconds: float = 1.0) -> dict[str, Any]:
    """A row as a suite leaves it; without an AUC it was declined."""
    model, ablation, granularity = case.split("/")
    row = dict.fromkeys(METRICS, 0.5 if auc is not None else None)
    return {
        **row, "case": case, "model": model, "ablation": ablation, "granularity": granularity,
        "source": "planted", "method": method, "auc": auc,
        "seconds": seconds, "cpu_seconds": seconds,
        "forwards": 3, "backwards": 0, "status": "declined" if auc is None else "ok",
        "reason": "too large for it" if auc is None else "",
    }  # fmt: skip


SUITE = [
    run("a/zero/edge", "quick", 0.8, 0.1),
    run("a/zero/edge", "slow", 1.0, 10.0),
    run("a/zero/edge", "poor", 0.6, 20.0),
    run("b/zero/edge", "quick", 0.6, 0.1),
    run("b/zero/edge", "slow", None),
    run("b/zero/edge", "poor", 0.4, 20.0),
    run("a/zero/head", "quick", 0.9, 0.1),
    run("a/zero/head", "never", None),
]
