"""Negative controls: models without the circuit, asked the question of a model that has it.

Three kinds, each beside its *twin*, the model that has the circuit:

- `fresh`: the twin's shape at its initialisation.
- `reset`: the twin's weights, with the rows of every head's matrices and of the unembedding
  shuffled: the same norms, but what one part writes no other reads.
- `other`: a model of the same shape and vocabulary with another circuit.

Every item is wrong, so ranks cannot be scored. What can be is whether a method's scores say that
there is nothing: `imir_detect.benchmark.meaning`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from imir_detect.benchmark.cases import TRUTH_SEED, Case, Labels
from imir_detect.errors import InvalidArgumentError
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import load_parameters, parameters

Control = Literal["fresh", "reset", "other"]
CONTROLS: tuple[Control, ...] = ("fresh", "reset", "other")
ABSENT = 0.2  # share of right answers up to which a behaviour is absent
SEED = 424_243  # of fresh weights and of shuffles


def control_case(twin: Case, kind: Control, other: Any = None) -> Case:
    """The twin's question asked of a model that has no circuit for it.

    - other: the model with another circuit, for the kind "other".

    Raises InvalidArgumentError where that model answers all the same.
    """
    model = other if kind == "other" else _like(twin.model, shuffle=kind == "reset")
    name = f"{twin.model_name}~{kind}"
    case = replace(
        twin,
        name=f"{name}/{twin.ablation}/{twin.granularity}",
        model_name=name,
        model=model,
        labels=None,
        facts={"source": "control", "kind": kind, "twin": twin.name},
    )
    prompts = case.patched(128, seed=TRUTH_SEED)
    right = float(prompts.right.double().mean())
    if right > ABSENT:
        raise InvalidArgumentError(
            "a control must not do what the case asks",
            got=f"{right:.2f} right",
            wanted=f"at most {ABSENT}",
            todo="ask a model with another circuit",
        )
    return replace(case, labels=Labels(frozenset(), frozenset(case.items), source="control"))


def _like(twin: Any, *, shuffle: bool) -> Any:
    """A native model of the twin's shape: fresh, or with its weights shuffled."""
    cfg = twin.cfg
    spec = ModelSpec(
        cfg.d_vocab,
        cfg.n_ctx,
        n_layers=cfg.n_layers,
        n_heads=cfg.n_heads,
        d_model=cfg.d_model,
        d_head=cfg.d_head,
        norm=cfg.normalization_type,
    )
    model = spec.boot(seed=SEED)
    if shuffle:
        generator = torch.Generator().manual_seed(SEED)
        found = {name: p.detach().clone() for name, p in parameters(twin).items()}
        load_parameters(model, {n: _shuffled(n, p, generator) for n, p in found.items()})
    return model.eval()


def _shuffled(name: str, tensor: Tensor, generator: torch.Generator) -> Tensor:
    """A weight matrix with its rows along d_model in another order."""
    *_, module, _ = name.split(".")
    if module not in ("q", "k", "v", "o", "head") or tensor.ndim != 2:
        return tensor
    axis = 0 if module == "o" else 1
    order = torch.randperm(tensor.shape[axis], generator=generator)
    return tensor.index_select(axis, order)
