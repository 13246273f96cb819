"""Planted circuits under other architectures: rotation, biases, grouped queries, ALiBi."""

from typing import Any

import planted
import torch

from imir_detect import detect_circuits
from imir_detect.weights.attention import Attention, Rotary
from imir_detect.weights.read import read_weights

TURNING = 8  # rotated dimensions of a head


@torch.no_grad()
def rotary_previous(model: Any, sharpness: float) -> None:
    """L0H0 looks one back by its biases and the rotation alone: score(i, j) is largest where the
    query's angle at i, turned one back, meets the key's at j."""
    attn = model.blocks[0].attn
    frequency = 10 ** (-torch.arange(0, TURNING, 2).float() / TURNING)
    attn.k.bias[:TURNING:2] = 1.0
    attn.q.bias[:TURNING:2] = sharpness * torch.cos(frequency)
    attn.q.bias[1:TURNING:2] = -sharpness * torch.sin(frequency)


def rotary_model(**spec: Any) -> Any:
    model = planted.empty(position="rotary", rotary_base=10.0, rotary_dim=TURNING, **spec)
    rotary_previous(model, 40.0)
    return model


def test_a_previous_token_head_that_lives_in_biases_and_rotation() -> None:
    report = detect_circuits(rotary_model())
    assert [(c.kind, c.heads) for c in report.circuits] == [("previous_token", ((0, 0),))]
    shift = next(row for row in report.coordinates if row["unit"] == "shift")
    assert (shift["layer"], shift["head"], shift["selection"]) == (0, 0, "shift 1")
    assert shift["effect"] > 20
    assert shift["predicted"] > 0.9


@torch.no_grad()
def test_induction_on_the_dimensions_that_do_not_turn() -> None:
    model = rotary_model()
    first, second = model.blocks[0].attn, model.blocks[1].attn
    S, V = planted.S, planted.VOCAB
    width = model.cfg.d_head
    free = min(V, width - TURNING)
    eye = torch.eye(width)
    first.v.weight[:V, S.token] = eye[:V, :V]
    first.o.weight[S.first, :V] = eye[:V, :V]
    # More tokens than free dimensions: queries and keys are matched through random codes.
    codes = torch.randn(V, free, generator=torch.Generator().manual_seed(0))
    codes = codes / codes.norm(dim=1, keepdim=True)
    second.q.weight[TURNING : TURNING + free, S.token] = 200 * codes.T
    second.k.weight[TURNING : TURNING + free, S.first] = codes.T
    second.v.weight[:V, S.token] = eye[:V, :V]
    second.o.weight[S.logit, :V] = eye[:V, :V]
    report = detect_circuits(model)
    assert report.label == "icl"
    circuit = report.circuits[0]
    assert (circuit.kind, circuit.heads) == ("induction", ((0, 0), (1, 0)))


def test_grouped_queries_pair_as_the_model_pairs_them() -> None:
    """Two heads a group: head 1 shares the keys and values of head 0."""
    model = planted.induction(heads=4, n_kv_heads=2)
    report = detect_circuits(model)
    assert report.label == "icl"
    assert report.circuits[0].heads == ((0, 0), (1, 0))


def test_alibi_makes_a_recency_head_of_a_blank_one() -> None:
    """Slope ln 2: attention to i - D is 2^-D of that to i, over a long context 1/4 to i - 1."""
    from dataclasses import replace

    weights = read_weights(planted.empty())
    slopes = torch.tensor([0.6931471805599453, 0.0], dtype=torch.float64)
    weights = replace(weights, attention=(Attention(slopes=slopes), Attention()))
    heads = detect_circuits(weights).heads
    assert abs(heads[0]["previous_token"] - 0.25) < 0.02
    assert heads[0]["role"] == "none"
    shift = detect_circuits(weights).coordinates[0]
    assert shift["selection"] == "shift 1"
    assert shift["effect"] > 1


def test_a_window_ends_what_a_head_sees() -> None:
    from dataclasses import replace

    weights = read_weights(planted.induction())
    wide = detect_circuits(weights)
    near = detect_circuits(replace(weights, attention=(Attention(), Attention(window=3))))
    blind = detect_circuits(replace(weights, attention=(Attention(), Attention(window=1))))
    assert wide.label == "icl"
    # Copies at most three back are seen: the share of places shrinks, and says so.
    shares = [
        circuit.coverage.share
        for report in (near, wide)
        for circuit in report.circuits
        if circuit.kind == "induction"
    ]
    assert shares[0] < 0.5 * shares[1]
    assert blind.label == "none"


def test_rotation_of_unused_dimensions_changes_nothing() -> None:
    """Under frequency 0 a rotary model is a plain one."""
    from dataclasses import replace

    weights = read_weights(planted.induction())
    still = Rotary(torch.zeros(4, dtype=torch.float64), adjacent=True)
    turned = replace(weights, attention=(Attention(rotary=still),) * 2)
    a, b = detect_circuits(weights), detect_circuits(turned)
    assert a.circuits == b.circuits
