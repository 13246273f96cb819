"""Our EAP, mask-integrated gradients and ACDC agree with auto-circuit 1.0.1 on every edge.

The reference scores were made by `benchmarks/leaderboard/oracle_scores.py` in an environment of its
own, on two fixed models of two layers and two heads, without a norm and with LayerNorm (gains away
from one). auto-circuit works in float32; differences are held against the largest score.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from imir_detect import read_weights
from imir_detect.benchmark.attribution import edge_scores, residuals
from imir_detect.benchmark.graph import PatchedModel, all_edges
from imir_detect.benchmark.methods.acdc import acdc_scores
from imir_detect.benchmark.methods.mask_gradients import mask_scores
from imir_detect.benchmark.prompts import Prompts
from imir_detect.coordinates.pathsum import Edge
from imir_detect.weights.native import ModelSpec

DATA = Path(__file__).parent / "data"
TOLERANCE = 1e-5
EDGES = all_edges(2, 2)


@pytest.fixture(scope="module", params=["plain", "layernorm"])
def reference(request: pytest.FixtureRequest) -> dict[str, Any]:
    return json.loads((DATA / f"auto_circuit_{request.param}.json").read_text(encoding="utf-8"))


def bridge_of(reference: dict[str, Any]) -> Any:
    """The reference's HookedTransformer weights in a native bridge."""
    weights = {name: torch.tensor(value) for name, value in reference["weights"].items()}
    n_ctx, width = weights["pos_embed.W_pos"].shape
    _, heads, _, d_head = torch.stack([weights[f"blocks.{i}.attn.W_Q"] for i in (0, 1)]).shape
    vocab = len(weights["embed.W_E"])
    spec = ModelSpec(
        vocab, n_ctx, n_heads=heads, d_model=width, d_head=d_head, norm=reference["norm"]
    )
    model = spec.boot(seed=0)
    with torch.no_grad():
        model.embed.weight.copy_(weights["embed.W_E"])
        model.pos_embed.weight.copy_(weights["pos_embed.W_pos"])
        model.unembed.weight.copy_(weights["unembed.W_U"].T)
        model.unembed.bias.copy_(weights["unembed.b_U"])
        norms = [("ln_final", model.ln_final)] if reference["norm"] else []
        for layer, block in enumerate(model.blocks):
            norms += [(f"blocks.{layer}.ln1", block.ln1)] if reference["norm"] else []
            for letter in "QKV":
                linear = getattr(block.attn, letter.lower())
                source = weights[f"blocks.{layer}.attn.W_{letter}"]
                linear.weight.copy_(source.transpose(1, 2).flatten(0, 1))
                linear.bias.copy_(weights[f"blocks.{layer}.attn.b_{letter}"].flatten())
            block.attn.o.weight.copy_(weights[f"blocks.{layer}.attn.W_O"].flatten(0, 1).T)
            block.attn.o.bias.copy_(weights[f"blocks.{layer}.attn.b_O"])
        for name, norm in norms:
            norm.weight.copy_(weights[f"{name}.w"])
            norm.bias.copy_(weights[f"{name}.b"])
    return model


def patched(reference: dict[str, Any], ablation: Any) -> PatchedModel:
    tokens, corrupt = torch.tensor(reference["clean"]), torch.tensor(reference["corrupt"])
    query = torch.full((len(tokens),), tokens.shape[1] - 1)
    answer, wrong = torch.tensor(reference["answer"]), torch.tensor(reference["wrong"])
    prompts = Prompts(tokens, corrupt, query, answer, wrong)
    return PatchedModel(read_weights(bridge_of(reference)), prompts, ablation)


def edge_of(source: str, target: str) -> Edge:
    """auto-circuit's names: A1.0.Q is head 0 of layer 1, query side."""

    def node(name: str) -> Any:
        if name.startswith("Resid"):
            return "embed" if name.endswith("Start") else "output"
        return tuple(int(part) for part in name[1:].split(".")[:2])

    port = target.split(".")[2] if target.startswith("A") else "out"
    return Edge(node(source), node(target), port)


def wanted(rows: list[dict[str, Any]]) -> torch.Tensor:
    found = {edge_of(row["source"], row["target"]): row["score"] for row in rows}
    assert set(found) == set(EDGES)
    return torch.tensor([float("inf") if found[e] is None else found[e] for e in EDGES])


def assert_close(got: torch.Tensor, target: torch.Tensor) -> None:
    error = float((got - target).abs().max() / target.abs().max())
    assert error < TOLERANCE, error


@pytest.mark.parametrize(
    ("key", "ablation"), [("eap", "resample"), ("eap_zero", "zero"), ("eap_mean", "mean")]
)
def test_edge_attribution_patching(reference: dict[str, Any], key: str, ablation: str) -> None:
    if reference["norm"] and ablation == "zero":
        pytest.skip("a norm's bias reaches the values; zero ablation here leaves such constants")
    model = patched(reference, ablation)
    change, prompts = model.clean - model.reference, model.prompts
    streams = residuals(model.trace)
    got = edge_scores(model.weights, streams, change, prompts, prompts.logit_diff)
    assert_close(got, wanted(reference[key]))


def test_mask_integrated_gradients(reference: dict[str, Any]) -> None:
    stored = reference["mask_gradients"]
    got = mask_scores(patched(reference, "resample"), stored["steps"])
    assert_close(got, wanted(stored["scores"]))


def test_acdc_removes_the_same_edges_at_the_same_thresholds(reference: dict[str, Any]) -> None:
    stored = reference["acdc"]
    walk = [EDGES.index(edge_of(*names)) for names in stored["walk"]]
    got = acdc_scores(patched(reference, "resample"), stored["taus"], walk)
    target = wanted(stored["scores"])
    stays = torch.isinf(target)
    assert len(target.unique()) >= 4  # the reference tells edges apart
    assert torch.equal(got == 2 * max(stored["taus"]), stays)
    assert torch.allclose(got[~stays], target[~stays].double(), rtol=TOLERANCE)
