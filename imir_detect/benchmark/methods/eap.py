"""Edge attribution patching (Syed, Rager and Conmy 2023), with either gradient.

score(s -> r) = <clean_s - reference_s, d metric / d input_r>. The gradient is taken on the clean
run (auto-circuit, EAP-IG) or on the corrupt run (TransformerLens); the metric is the logit
difference between the answer and the corrupt sequence's answer. Ranked by absolute value.
"""

from __future__ import annotations

import torch

from imir_detect.benchmark.attribution import edge_scores, residuals
from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.contract import Budget, Scores, everything, method
from imir_detect.coordinates.pathsum import sum_paths


@method("eap", about="edge attribution patching, gradient on the clean run", supports=everything)
def eap(case: Case, *, budget: Budget) -> Scores:
    """First-order effects, clean gradient. Of units: the slope of the answer's margin over all
    other logits."""
    if case.granularity == "unit":
        units = case.without_units(budget.samples, seed=budget.seed)
        whole = torch.ones(units.size, dtype=torch.bool)
        signed = -units.objective.margins(whole)[1].mean(0)
        return Scores(signed.abs(), signed=signed, forwards=1, backwards=1)
    return _eap(case, budget, corrupt=False)


@method("eap-corrupt", about="edge attribution patching, gradient on the corrupt run")
def eap_corrupt(case: Case, *, budget: Budget) -> Scores:
    """First-order effects, corrupt gradient."""
    return _eap(case, budget, corrupt=True)


def _eap(case: Case, budget: Budget, *, corrupt: bool) -> Scores:
    model = case.patched(budget.samples, seed=budget.seed)
    prompts = model.prompts
    trace = sum_paths(case.weights, prompts.corrupt) if corrupt else model.trace
    signed = edge_scores(
        case.weights, residuals(trace), model.clean - model.reference, prompts, prompts.logit_diff
    )
    forwards = model.forwards + (corrupt and case.ablation == "zero")
    return Scores(case.to_items(signed.abs()), forwards=forwards, backwards=1)
