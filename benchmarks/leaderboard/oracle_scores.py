"""Scores of auto-circuit 1.0.1 on two fixed small models, for the tests of our own methods.

    bash benchmarks/leaderboard/oracle_env.sh FOLDER
    OMP_NUM_THREADS=1 FOLDER/bin/python benchmarks/leaderboard/oracle_scores.py OUT

Runs in that environment alone (transformer-lens 2.18) and imports nothing of this package. Writes
OUT/auto_circuit_NAME.json: configuration, weights, prompts, and the scores of every edge, in
auto-circuit's own order, by edge attribution patching, mask-integrated gradients and ACDC.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from auto_circuit.data import PromptDataLoader, PromptDataset
from auto_circuit.prune_algos.ACDC import acdc_prune_scores
from auto_circuit.prune_algos.mask_gradient import mask_gradient_prune_scores
from auto_circuit.types import AblationType
from auto_circuit.utils.graph_utils import patchable_model
from transformer_lens import HookedTransformer, HookedTransformerConfig

VOCAB, CONTEXT, WIDTH, HEAD = 10, 6, 8, 4
NAMES = {"plain": None, "layernorm": "LN"}
STEPS = 6
TAU_EXPONENTS, TAU_BASES = [-3, -2, -1, 0], [1, 3]


def make_model(norm: str | None, seed: int) -> HookedTransformer:
    torch.manual_seed(seed)
    config = HookedTransformerConfig(
        n_layers=2,
        n_heads=2,
        d_model=WIDTH,
        d_head=HEAD,
        n_ctx=CONTEXT,
        d_vocab=VOCAB,
        attn_only=True,
        normalization_type=norm,
        seed=seed,
        device="cpu",
    )
    model = HookedTransformer(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("b_V"):  # value biases live on in our output biases
                parameter.zero_()
            elif "ln" in name and name.endswith("w"):
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
            else:
                parameter.copy_(0.6 * torch.randn_like(parameter))
    model.cfg.use_attn_result = True
    model.cfg.use_split_qkv_input = True
    return model


def scores_of(model: Any, prune_scores: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
    return [
        {
            "source": edge.src.name,
            "target": edge.dest.name,
            "score": float(prune_scores[edge.dest.module_name][edge.patch_idx]),
        }
        for edge in model.edges
    ]


def _without_infinity(value: Any) -> Any:
    """Infinite scores (edges that ACDC never removes) as null."""
    if isinstance(value, dict):
        return {k: _without_infinity(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_infinity(v) for v in value]
    return None if value == float("inf") else value


def main(out: Path) -> None:
    for index, (name, norm) in enumerate(NAMES.items()):
        model = make_model(norm, seed=7 + index)
        generator = torch.Generator().manual_seed(3)
        clean = torch.randint(VOCAB, (8, CONTEXT), generator=generator)
        corrupt = torch.randint(VOCAB, (8, CONTEXT), generator=generator)
        pairs = torch.rand(8, VOCAB, generator=generator).argsort(1)[:, :2]
        data = PromptDataset(list(clean), list(corrupt), list(pairs[:, :1]), list(pairs[:, 1:]))
        loader = PromptDataLoader(data, seq_len=CONTEXT, diverge_idx=0, batch_size=8, shuffle=False)
        state = {name: p.tolist() for name, p in model.named_parameters()}
        patchable = patchable_model(
            model,
            factorized=True,
            slice_output="last_seq",
            separate_qkv=True,
            device=torch.device("cpu"),
        )
        common = {
            "official_edges": None,
            "grad_function": "logit",
            "answer_function": "avg_diff",
        }
        eap, zero, mean, integrated = (
            mask_gradient_prune_scores(patchable, loader, **common, **how)
            for how in (
                {"mask_val": 0.0},
                {
                    "mask_val": 0.0,
                    "ablation_type": AblationType.ZERO,
                    "clean_corrupt": None,
                },
                {"mask_val": 0.0, "ablation_type": AblationType.BATCH_TOKENWISE_MEAN},
                {"integrated_grad_samples": STEPS},
            )
        )
        acdc = acdc_prune_scores(
            patchable, loader, None, tao_exps=TAU_EXPONENTS, tao_bases=TAU_BASES
        )
        walk = sorted(patchable.edges, key=lambda edge: edge.dest.layer, reverse=True)
        found = {
            "made_by": "auto-circuit 1.0.1, transformer-lens 2.18.0, torch " + torch.__version__,
            "norm": norm,
            "weights": state,
            "clean": clean.tolist(),
            "corrupt": corrupt.tolist(),
            "answer": pairs[:, 0].tolist(),
            "wrong": pairs[:, 1].tolist(),
            "eap": scores_of(patchable, eap),
            "eap_prune_scores": {module: score.tolist() for module, score in eap.items()},
            "eap_zero": scores_of(patchable, zero),
            "eap_mean": scores_of(patchable, mean),
            "mask_gradients": {"steps": STEPS, "scores": scores_of(patchable, integrated)},
            "acdc": {
                "taus": [b * 10.0**e for b in TAU_BASES for e in TAU_EXPONENTS],
                "walk": [[edge.src.name, edge.dest.name] for edge in walk],
                "scores": scores_of(patchable, acdc),
            },
        }
        text = json.dumps(_without_infinity(found), allow_nan=False)
        (out / f"auto_circuit_{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
