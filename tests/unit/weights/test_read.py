"""Reading: folding is exact and idempotent, and what is not read is refused by name."""

from typing import Any

import planted
import pytest
import torch

from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.errors import InvalidWeightsError, UnsupportedModelError
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights


def differences(a: ModelWeights, b: ModelWeights) -> float:
    return max(
        float((x - y).abs().max()) / max(1.0, float(x.abs().max()))
        for (_, x), (_, y) in zip(a.tensors(), b.tensors(), strict=True)
    )


@pytest.mark.parametrize("norm", ["LN", "RMS"])
def test_folding_before_reading_changes_nothing(norm: Any) -> None:
    model = ModelSpec(9, 6, d_model=12, n_heads=2, norm=norm, init_range=0.5).boot(seed=1)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    raw = read_weights(model)
    model.enable_compatibility_mode()
    once = read_weights(model)
    assert differences(raw, once) < 1e-5


def test_a_gain_of_zero_switches_a_path_off_and_a_negative_one_flips_it() -> None:
    model = planted.induction(norm="LN")
    assert read_weights(model).W_Q[1, 0].any()
    with torch.no_grad():
        model.blocks[1].ln1.weight[planted.S.first] = 0
        model.ln_final.weight[planted.S.logit] = -1
    weights = read_weights(model)
    # The key slot is gone up to what centring leaves of it.
    keys = weights.W_K[1, 0][planted.S.first]
    assert float((keys - keys.mean(0)).abs().max()) < 1e-9
    own = weights.W_U[planted.S.logit].diagonal()
    assert bool((own < 0).all())


def test_value_biases_move_into_output_biases() -> None:
    model = planted.empty()
    with torch.no_grad():
        model.blocks[0].attn.v.bias[0] = 2.0
        model.blocks[0].attn.o.weight[3, 0] = 5.0
    assert read_weights(model).b_O[0, 3] == 10.0


def test_the_model_keeps_dtype_and_weights() -> None:
    model = planted.induction().to(torch.bfloat16)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    weights = read_weights(model)
    assert weights.W_E.dtype == torch.float64
    after = model.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert after["embed.weight"].dtype == torch.bfloat16


def test_weights_pass_through() -> None:
    weights = read_weights(planted.induction())
    assert read_weights(weights) is weights
    assert weights.hash() == read_weights(planted.induction()).hash()
    assert weights.hash() != read_weights(planted.empty()).hash()


def test_a_stray_nan_is_named_before_anything_is_computed() -> None:
    model = planted.induction()
    with torch.no_grad():
        model.blocks[1].attn.o.weight[0, 0] = float("nan")
        model.embed.weight[2, :3] = float("inf")
    with pytest.raises(InvalidWeightsError, match=r"tok_embed.weight: 3 of \d+ entries") as caught:
        read_weights(model)
    assert "block 1, W_O" in str(caught.value)
    assert "1 of" in str(caught.value)


def test_packed_weights_are_named_and_never_cast() -> None:
    model = planted.induction()
    packed = torch.nn.Parameter(torch.zeros(14 * 70, 1, dtype=torch.uint8), requires_grad=False)
    model.blocks[0].attn.q.original_component.weight = packed
    with pytest.raises(
        InvalidWeightsError, match=r"not floating-point .*; got block 0, W_Q .*: torch.uint8 \(980"
    ):
        read_weights(model)


class Odd:
    """Something that is no model."""


def test_bidirectional_attention_is_refused_by_name() -> None:
    model = ModelSpec(9, 6, d_model=8, n_heads=2).boot(seed=0)
    model.cfg.attention_dir = "bidirectional"
    with pytest.raises(UnsupportedModelError, match="bidirectional attention"):
        read_weights(model)


def test_the_modules_win_over_a_configuration_that_says_otherwise() -> None:
    model = ModelSpec(9, 6, d_model=8, n_heads=2, norm="LN").boot(seed=0)
    expected = read_weights(model).hash()
    model.cfg.final_rms = True
    model.cfg.attn_scores_soft_cap = 20.0
    assert read_weights(model).hash() == expected


def test_blocks_and_final_norm_of_different_kinds_are_refused() -> None:
    model = ModelSpec(9, 6, d_model=8, n_heads=2, norm="LN").boot(seed=0)
    other = ModelSpec(9, 6, d_model=8, n_heads=2, norm="RMS").boot(seed=0)
    model.ln_final = other.ln_final
    with pytest.raises(UnsupportedModelError, match="different kinds; got LN and RMS"):
        read_weights(model)


def test_a_model_that_does_not_run_gets_one_line() -> None:
    model = ModelSpec(9, 6, d_model=8, n_heads=2).boot(seed=0)
    model.original_model.forward = lambda *args, **kwargs: 1 / 0
    with pytest.raises(UnsupportedModelError, match=r"could not be read; got ZeroDivisionError"):
        read_weights(model)


def test_wrappers_are_taken_off() -> None:
    model = planted.induction()
    expected = read_weights(model).hash()
    assert read_weights(torch.nn.DataParallel(model)).hash() == expected
    assert read_weights(torch.compile(model)).hash() == expected


def test_evaluation_mode_is_put_back() -> None:
    model = ModelSpec(9, 6, d_model=8, n_heads=2).boot(seed=0)
    expected = read_weights(model).hash()
    model.train()
    assert read_weights(model).hash() == expected
    assert model.training
    assert model.blocks[0].attn.training


def test_other_kinds_of_model_are_named() -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"got test_read.Odd.*wrap it in a TransformerBridge"
    ):
        read_weights(Odd())


def test_shapes_dtypes_and_values_are_checked_when_weights_are_made() -> None:
    from dataclasses import replace

    weights = read_weights(planted.induction())
    with pytest.raises(InvalidWeightsError, match=r"W_O does not fit.*got \(2, 2, 3, 70\)"):
        replace(weights, W_O=torch.zeros(2, 2, 3, 70, dtype=torch.float64))
    with pytest.raises(InvalidWeightsError, match="b_U is not float64"):
        replace(weights, b_U=weights.b_U.float())
    with pytest.raises(InvalidWeightsError, match="W_U holds numbers that are not finite"):
        replace(weights, W_U=weights.W_U / 0)
    with pytest.raises(InvalidWeightsError, match="mlps needs one entry a layer"):
        replace(weights, mlps=(None,))
    with pytest.raises(InvalidWeightsError, match="attention needs one entry a layer"):
        replace(weights, attention=weights.attention[:1])
    with pytest.raises(InvalidWeightsError, match="how many positions"):
        replace(weights, W_pos=weights.W_pos[:0], context=0)
    with pytest.raises(InvalidWeightsError, match="wrong number of axes"):
        replace(weights, W_Q=weights.W_Q[0])


def test_products_are_what_their_names_say() -> None:
    weights = read_weights(planted.induction())
    tokens = torch.arange(planted.VOCAB)[None].flip(0)
    x = weights.W_E[tokens[0]]
    scores = (
        x @ weights.W_QK(1, 0) @ torch.eye(weights.d_model, dtype=torch.float64)[planted.S.first].T
    )
    expected = 60 / planted.VOCAB**0.5 * torch.eye(planted.VOCAB, dtype=torch.float64)
    assert torch.allclose(scores, expected)
    assert torch.allclose(
        (x @ weights.W_OV(1, 0))[:, planted.S.logit],
        torch.eye(planted.VOCAB, dtype=torch.float64),
    )
    assert sum_paths(weights, tokens).final.shape == (1, planted.VOCAB, weights.d_model)
