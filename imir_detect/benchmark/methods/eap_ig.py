"""EAP with integrated gradients (Hanna, Pezzelle and Belinkov 2024; activations: MIB 2025).

The gradient of edge attribution patching is averaged over `budget.steps` runs on the way from the
reference to clean, at k / steps, k = 1 .. steps (one step is plain EAP). *Inputs*: the embedding is
interpolated and the rest follows. *Activations*: what one layer's nodes write is interpolated, one
layer at a time, and gives the gradients for the edges out of that layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imir_detect.benchmark.attribution import edge_scores, streams_from
from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.contract import Budget, Scores, method
from imir_detect.benchmark.graph import PatchedModel


@method("eap-ig-inputs", about="EAP, gradients integrated over inputs")
def eap_ig_inputs(case: Case, *, budget: Budget) -> Scores:
    """Average over interpolated embeddings."""
    model = case.patched(budget.samples, seed=budget.seed)
    signed = inputs_scores(model, budget.steps)
    return Scores(
        case.to_items(signed.abs()),
        forwards=model.forwards + budget.steps,
        backwards=budget.steps,
    )


@method("eap-ig-activations", about="EAP, gradients integrated over each layer's activations")
def eap_ig_activations(case: Case, *, budget: Budget) -> Scores:
    """Average over interpolated activations, layer by layer."""
    model = case.patched(budget.samples, seed=budget.seed)
    signed = activations_scores(model, budget.steps)
    passes = budget.steps * (case.weights.n_layers + 1)
    return Scores(case.to_items(signed.abs()), forwards=model.forwards + passes, backwards=passes)


def inputs_scores(model: PatchedModel, steps: int) -> Tensor:
    """Signed scores, by edge."""
    change, prompts = model.clean - model.reference, model.prompts
    total = torch.zeros(len(model.edges), dtype=torch.float64)
    for k in range(1, steps + 1):
        embedded = model.reference[0] + k / steps * change[0]
        streams = streams_from(model.weights, embedded)
        total += edge_scores(model.weights, streams, change, prompts, prompts.logit_diff)
    return total / steps


def activations_scores(model: PatchedModel, steps: int) -> Tensor:
    """Signed scores, by edge."""
    w, prompts = model.weights, model.prompts
    change = model.clean - model.reference
    total = torch.zeros(len(model.edges), dtype=torch.float64)
    for group in range(-1, w.n_layers):
        mine = (
            slice(0, 1) if group < 0 else slice(1 + group * w.n_heads, 1 + (group + 1) * w.n_heads)
        )
        own = torch.zeros_like(change)
        own[mine] = change[mine]
        for k in range(1, steps + 1):
            part = model.reference[mine] + k / steps * change[mine]
            if group < 0:
                streams = streams_from(w, part[0])
            else:
                streams = streams_from(w, model.clean[0], {group: part})
            total += edge_scores(w, streams, own, prompts, prompts.logit_diff)
    return total / steps
