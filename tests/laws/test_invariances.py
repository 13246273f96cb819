"""Laws of the coordinates and of the label: what must not change, and what must follow along.

On float64 `ModelWeights`, to 1e-6 relative; through a float32 model, to 1e-4.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from imir_detect import Report, detect_circuits, read_weights, shipped_card, shipped_model
from imir_detect.tasks import make_task
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec

F64 = torch.float64
TIGHT, LOOSE = 1e-6, 1e-4


@pytest.fixture(scope="module", params=["icl", "mixed"])
def weights(request: Any) -> ModelWeights:
    return read_weights(shipped_model(request.param))


@pytest.fixture(scope="module")
def plain(weights: ModelWeights) -> Report:
    return detect_circuits(weights)


def numbers(report: Report) -> torch.Tensor:
    rows = report.coordinates
    return torch.tensor(
        [[row["effect"], row["cosine"], row["z"] or 0.0] for row in rows], dtype=F64
    )


def assert_same(a: Report, b: Report, tolerance: float) -> None:
    x, y = numbers(a), numbers(b)
    scale = y.abs().amax(0)
    assert float(((x - y).abs() / scale).max()) < tolerance
    assert a.label == b.label
    assert [(c.kind, c.heads) for c in a.circuits] == [(c.kind, c.heads) for c in b.circuits]
    for c, d in zip(a.circuits, b.circuits, strict=True):
        assert c.strength == pytest.approx(d.strength, abs=0.02)


def rotation(size: int, *, fix_ones: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    if not fix_ones:
        return torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=F64))[0]
    # Rotate within the complement of the ones vector.
    basis = torch.linalg.qr(
        torch.cat(
            [
                torch.ones(size, 1, dtype=F64),
                torch.randn(size, size - 1, generator=generator, dtype=F64),
            ],
            1,
        )
    )[0]
    inner = torch.eye(size, dtype=F64)
    inner[1:, 1:] = torch.linalg.qr(
        torch.randn(size - 1, size - 1, generator=generator, dtype=F64)
    )[0]
    return basis @ inner @ basis.T


def rotated(w: ModelWeights) -> ModelWeights:
    Q = rotation(w.d_model, fix_ones=w.rms)
    return replace(
        w,
        W_E=w.W_E @ Q,
        W_pos=w.W_pos @ Q,
        W_Q=Q.T @ w.W_Q,
        W_K=Q.T @ w.W_K,
        W_V=Q.T @ w.W_V,
        W_O=w.W_O @ Q,
        b_O=w.b_O @ Q,
        W_U=Q.T @ w.W_U,
    )


def rescaled(w: ModelWeights) -> ModelWeights:
    factor = torch.linspace(0.01, 90, w.n_layers * w.n_heads, dtype=F64)
    factor = factor.view(w.n_layers, w.n_heads, 1, 1)
    return replace(
        w,
        W_Q=w.W_Q * factor,
        b_Q=w.b_Q * factor[..., 0],
        W_K=w.W_K / factor,
        b_K=w.b_K / factor[..., 0],
        W_V=w.W_V / factor,
        W_O=w.W_O * factor,
    )


@pytest.mark.parametrize("change", [rotated, rescaled], ids=lambda f: f.__name__)
def test_coordinates_do_not_see_the_basis(
    weights: ModelWeights, plain: Report, change: Callable[[ModelWeights], ModelWeights]
) -> None:
    assert_same(detect_circuits(change(weights)), plain, TIGHT)


def test_permuting_heads_permutes_the_circuit(weights: ModelWeights, plain: Report) -> None:
    order = list(reversed(range(weights.n_heads)))
    names = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K")
    swapped = replace(weights, **{name: getattr(weights, name)[:, order] for name in names})
    report = detect_circuits(swapped)
    assert report.label == plain.label
    moved = {
        (c.kind, tuple(sorted((layer, order[h]) for layer, h in c.heads))) for c in plain.circuits
    }
    assert {(c.kind, c.heads) for c in report.circuits} == moved
    effect = {
        (r["unit"], r["layer"], r["head"], r["path"], r["selection"]): r["effect"]
        for r in report.coordinates
    }
    for row in plain.coordinates:
        if row["layer"] is None or "q:" in row["path"] or ">" in row["path"]:
            continue
        head = order[row["head"]]
        path = row["path"] if row["path"] == "direct" else f"L{row['layer']}H{head}"
        key = (row["unit"], row["layer"], head, path, row["selection"])
        assert effect[key] == pytest.approx(row["effect"], rel=TIGHT, abs=1e-9)


@pytest.mark.parametrize(("name", "effects"), [("icl", TIGHT), ("mixed", 0.02)])
def test_relabelling_tokens_with_their_relation_changes_no_coordinate(
    name: str, effects: float
) -> None:
    # In a model with norms (mixed) random contexts fall on other tokens, so the typical norm, a
    # mean over them, moves by sampling and scales the effects; cosine and z are free of it.
    task = make_task("recall", **shipped_card(name)["task"]["knobs"])
    w, R = read_weights(shipped_model(name)), task.relation
    order = torch.randperm(w.vocab_size, generator=torch.Generator().manual_seed(0))
    place = order.argsort()
    moved = replace(w, W_E=w.W_E[order], W_U=w.W_U[:, order], b_U=w.b_U[order])
    R_moved = torch.where(R[order] < 0, -1, place[R[order]])
    plain = detect_circuits(w, relation=R)
    report = detect_circuits(moved, relation=R_moved)
    on_tokens = torch.tensor([r["unit"] != "shift" for r in plain.coordinates])
    x, y = numbers(report)[on_tokens], numbers(plain)[on_tokens]
    off = (x - y).abs().amax(0) / y.abs().amax(0)
    assert float(off[0]) < effects
    assert float(off[1:].max()) < TIGHT
    assert report.label == plain.label


@pytest.mark.parametrize("norm", [None, "LN", "RMS"])
def test_rescaling_inside_a_float32_model(norm: Any) -> None:
    spec = ModelSpec(20, 10, n_heads=2, d_model=16, norm=norm, init_range=0.4)
    plain, model = spec.boot(seed=2), spec.boot(seed=2)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.q.weight.mul_(7.3)
            block.attn.q.bias.mul_(7.3)
            block.attn.k.weight.div_(7.3)
            block.attn.v.weight.mul_(0.11)
            block.attn.o.weight.div_(0.11)
    assert_same(detect_circuits(model), detect_circuits(plain), LOOSE)
