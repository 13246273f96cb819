"""Transformers with a circuit planted in their weights, and the exact truth about it.

The residual stream is cut into slots: `token` and `position` hold one-hot embeddings, `found` is
where feeders write, `junk` is read by nothing, `logit` is what the unembedding reads. A *job* is
what one head does: it scores where the index in its query slot, less `back`, equals the index in
its key slot, and moves one slot to another. A seeded orthonormal basis, at right angles to the
all-ones vector so that LayerNorm's centring changes nothing, carries the slots into the model's
width; every head is turned inside, so that no weight shows the plan by eye.

Truth is a matter of the ablation: what a source brings under mean or resample ablation is only
what varies with the tokens, so edges that carry positions alone are part of a circuit under zero
ablation and of none otherwise (`imir_detect.models.planted_truth`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from imir_detect.models.planted_jobs import REFERENCE, Job, job_matrices, jobs
from imir_detect.models.planted_spec import FED, KINDS, PlantedSpec, PlantKind, Slot, relation_of
from imir_detect.weights.native import ModelSpec

if TYPE_CHECKING:
    from transformer_lens import TransformerBridge

__all__ = [
    "FED",
    "KINDS",
    "Job",
    "PlantKind",
    "PlantedSpec",
    "Slot",
    "build",
    "jobs",
    "relation_of",
]


@torch.no_grad()
def build(spec: PlantedSpec) -> TransformerBridge:
    """The native bridge with the jobs of `spec` in its weights.

    Scores lead by `sharpness` nats where nothing is normalised; behind a norm they are scaled for
    the residual of the first layer and shrink by at most half later on.
    """
    shape = ModelSpec(
        spec.vocab,
        spec.context,
        n_layers=spec.layers,
        n_heads=spec.heads,
        d_model=spec.width,
        d_head=spec.head_width,
        norm=spec.norm,
    )
    model = shape.boot(seed=spec.seed)
    generator = torch.Generator().manual_seed(spec.seed + 1)
    basis = _basis(spec, generator)
    slots = spec.slots()
    factor = math.sqrt(spec.width / 2) if spec.norm else 1.0  # the norm's, at the embedding
    for name, parameter in model.original_model.named_parameters():
        if "ln" not in name:
            parameter.zero_()
    model.embed.weight.copy_(basis[slots["token"]])
    model.pos_embed.weight.copy_(basis[slots["position"]])
    unembed = basis[slots["logit"]].clone()
    if spec.kind == "in_weights" and not spec.by_head:
        partner = relation_of(spec)
        named = partner >= 0
        unembed[partner[named]] += spec.gain * basis[slots["token"]][named]
    model.unembed.weight.copy_(unembed / factor)
    weights = torch.zeros(spec.layers, 4, spec.heads, spec.width, spec.head_width)
    for job in jobs(spec):
        for letter, matrix in enumerate(job_matrices(spec, job, basis, slots, factor)):
            weights[job.head[0], letter, job.head[1]] = matrix
    reference = torch.stack(job_matrices(spec, REFERENCE, basis, slots, factor))
    weights += _noise(spec, weights, reference, generator)
    weights[:, :2] = weights[:, :2] @ _turns(spec, generator)
    weights[:, 2:] = weights[:, 2:] @ _turns(spec, generator)
    for layer in range(spec.layers):
        attention = model.blocks[layer].attn
        for letter, linear in enumerate((attention.q, attention.k, attention.v)):
            linear.weight.copy_(weights[layer, letter].transpose(1, 2).flatten(0, 1))
        attention.o.weight.copy_(weights[layer, 3].transpose(0, 1).flatten(1))
    return model.eval()


def _basis(spec: PlantedSpec, generator: torch.Generator) -> Tensor:
    """Orthonormal rows, one a slot entry, all at right angles to the all-ones vector."""
    drawn = torch.randn(spec.width, spec.slot_count, generator=generator, dtype=torch.float64)
    drawn = torch.cat([drawn.new_ones(spec.width, 1), drawn], dim=1)
    return torch.linalg.qr(drawn).Q[:, 1:].T.float()


def _noise(
    spec: PlantedSpec, weights: Tensor, reference: Tensor, generator: torch.Generator
) -> Tensor:
    """Gaussian noise on every head, each matrix of the norm `noise` x the planted ones' mean (where
    nothing is planted: that of `reference`)."""
    drawn = torch.randn(weights.shape, generator=generator)
    norms = weights.flatten(3).norm(dim=3)  # (layer, letter, head)
    planted = norms > 0
    typical = (norms * planted).sum((0, 2)) / planted.sum((0, 2)).clamp(min=1)
    typical = torch.where(planted.any(2).any(0), typical, reference.flatten(1).norm(dim=1))
    unit = drawn / drawn.flatten(3).norm(dim=3)[..., None, None]
    return spec.noise * typical[None, :, None, None, None] * unit


def _turns(spec: PlantedSpec, generator: torch.Generator) -> Tensor:
    """One random rotation of the head's own space a head: (layer, 1, head, d_head, d_head)."""
    size = spec.head_width
    drawn = torch.randn(spec.layers, 1, spec.heads, size, size, generator=generator)
    return torch.linalg.qr(drawn).Q
