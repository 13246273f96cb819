"""Parameters as they are stored: every fault of every one is told at once, and named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import planted
import pytest
import torch

from imir_detect import ImirError, detect_circuits, read_weights
from imir_detect.errors import InvalidWeightsError, UnsupportedModelError
from imir_detect.weights.native import ModelSpec

SPEC = ModelSpec(9, 6, d_model=8, n_heads=2)


def with_query(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A model whose first layer's W_Q is stored in another way."""
    model = SPEC.boot(seed=0)
    module = model.blocks[0].attn.q.original_component
    changed = change(module.weight.detach())
    module.weight = torch.nn.Parameter(changed, requires_grad=False)
    return model


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda w: w.to(torch.float8_e4m3fn), r"torch.float8_e4m3fn \(8, 8\); wanted float16, bf"),
        (lambda w: torch.zeros(8, 8, dtype=torch.int8), r"torch.int8 \(8, 8\)"),
        (lambda w: torch.zeros(32, 1, dtype=torch.uint8), r"torch.uint8 \(32, 1\).*unquantised"),
        (lambda w: w.to(torch.complex64), r"torch.complex64 \(8, 8\)"),
        (
            lambda w: w.to_sparse(),
            r"form that is not read; got .*: torch.sparse_coo; wanted dense",
        ),
        (lambda w: w.to("meta"), "without data; got .*: on the meta device; wanted weights in mem"),
        (lambda w: w * float("nan"), "not finite; got .*: 64 of 64 entries; wanted finite weights"),
    ],
)
def test_odd_forms_are_named(change: Any, text: str) -> None:
    text = text.replace("got .*", r"got block 0, W_Q \(layers.0.attn.q.weight\)")
    with pytest.raises(InvalidWeightsError, match=text):
        read_weights(with_query(change))


def test_faults_of_several_kinds_and_parameters_are_told_together() -> None:
    model = with_query(lambda w: w.to(torch.int8))
    with torch.no_grad():
        for parameter in model.blocks[1].parameters():
            parameter.fill_(float("inf"))
        model.embed.weight[2, :3] = float("nan")
    with pytest.raises(InvalidWeightsError) as caught:
        read_weights(model)
    first, second = caught.value.problems
    assert first.got == "block 0, W_Q (layers.0.attn.q.weight): torch.int8 (8, 8)"
    assert "tok_embed.weight: 3 of 72 entries" in second.got
    for name in "QKVO":
        size = model.blocks[1].attn.q.weight.numel()
        assert f"block 1, W_{name} (layers.1.attn.{name.lower()}.weight): {size} of" in second.got
        assert f"block 1, b_{name}" in second.got


@pytest.mark.parametrize("factor", [1e30, 1e38])
def test_weights_that_overflow_are_named_by_their_size(factor: float) -> None:
    model = SPEC.boot(seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)
    text = r"overflows when it runs: the residual stream before layer 1 is not finite; got entries "
    text += r"up to \d\.\de\+\d\d in [a-z_.0-9]+, computed in float32; wanted .*wider number type"
    with pytest.raises(InvalidWeightsError, match=text):
        read_weights(model)


def test_subnormal_weights_and_shared_parameters_are_read() -> None:
    tiny = SPEC.boot(seed=0)
    with torch.no_grad():
        for parameter in tiny.parameters():
            parameter.mul_(1e-40)
    assert detect_circuits(tiny).label == "none"
    shared = SPEC.boot(seed=0)
    q = [shared.blocks[i].attn.q.original_component for i in (0, 1)]
    q[1].weight = q[0].weight
    weights = read_weights(shared)
    assert torch.equal(weights.W_Q[0], weights.W_Q[1])


def test_a_stream_of_one_number_has_no_norm_to_tell() -> None:
    model = ModelSpec(9, 6, d_model=1).boot(seed=0)
    with pytest.raises(UnsupportedModelError, match="stream of one number; got d_model 1; wanted"):
        read_weights(model)


def test_bare_weights_tell_everything_that_does_not_fit() -> None:
    weights = read_weights(planted.induction())
    with pytest.raises(InvalidWeightsError) as caught:
        replace(
            weights,
            W_O=torch.zeros(2, 2, 3, 70, dtype=torch.float64),
            W_U=weights.W_U / 0,
            b_U=weights.b_U.float(),
            attention=weights.attention[:1],
        )
    assert [problem.what for problem in caught.value.problems] == [
        "W_O does not fit the other weights",
        "attention needs one entry a layer",
        "W_U holds numbers that are not finite",
        "b_U is not float64",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"W_Q": torch.zeros(0, 2, 3, 4)},
        {"W_Q": torch.zeros(2, 0, 3, 4)},
        {"W_E": torch.zeros(0, 70)},
        {"W_U": torch.zeros(3)},
        {"W_pos": torch.zeros(())},
        {"W_E": None},
    ],
)
def test_bare_weights_without_axes_are_refused(change: dict[str, Any]) -> None:
    weights = read_weights(planted.induction())
    (name,) = change
    with pytest.raises(ImirError, match=rf"wrong number of axes, or nothing along one; got {name}"):
        replace(weights, **change)
