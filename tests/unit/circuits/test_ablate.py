"""Ablating a circuit: what changes inside the block, and that nothing has changed after it."""

from typing import Any

import pytest
import torch

from imir_detect import Circuit, Coverage, read_weights
from imir_detect.errors import InvalidArgumentError
from imir_detect.weights.ablation import mean_ablation_hooks
from imir_detect.weights.run import run_ablated


def circuit(*heads: tuple[int, int]) -> Circuit:
    return Circuit("induction", heads, (), {}, 0.9, Coverage(1.0, "positions"))


def tokens(model: Any, count: int = 8) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(model.cfg.d_vocab, (count, 12), generator=generator)


def test_the_mean_is_taken_over_the_batch_for_the_named_heads_only() -> None:
    ((name, ablate),) = mean_ablation_hooks([(1, 0)])
    assert name == "blocks.1.attn.hook_z"
    z = torch.tensor([[[[1.0], [5.0]]], [[[3.0], [9.0]]]])  # batch 2, one place, two heads
    expected = torch.tensor([[[[2.0], [5.0]]], [[[2.0], [9.0]]]])
    assert torch.equal(ablate(z), expected)
    ((_, flat),) = mean_ablation_hooks([(1, 0)], n_heads=2)
    assert torch.equal(flat(z.flatten(-2)), expected.flatten(-2))
    assert torch.equal(z[0, 0, 0], torch.tensor([1.0]))  # the input is left alone


def test_the_block_ablates_and_leaves_no_trace(shipped: dict[str, Any]) -> None:
    model, report = shipped["icl"]
    found = report.circuits[0]
    batch = tokens(model)
    seen: list[int] = []

    def mine(z: torch.Tensor, hook: Any) -> torch.Tensor:
        seen.append(1)
        return z

    before = {name: p.clone() for name, p in model.named_parameters()}
    intact = model(batch)
    model.add_hook("blocks.0.attn.hook_z", mine)
    try:
        with found.ablate(model) as inside:
            assert inside is model
            ablated = model(batch)
        assert seen == [1]
        assert torch.equal(model(batch), intact)
        assert seen == [1, 1]  # a hook of the user's own is still there
    finally:
        model.reset_hooks()
    assert not torch.allclose(ablated, intact, atol=0.1)
    assert torch.equal(ablated.double(), run_ablated(model, batch, found.heads))
    hooked = model.run_with_hooks(batch, fwd_hooks=found.hooks())
    assert torch.equal(hooked, ablated)
    after = dict(model.named_parameters())
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(model(batch), intact)


def test_an_error_inside_the_block_leaves_no_trace_either(shipped: dict[str, Any]) -> None:
    model, report = shipped["icl"]
    batch = tokens(model)
    intact = model(batch)
    with pytest.raises(RuntimeError, match="mine"), report.circuits[0].ablate(model):
        raise RuntimeError("mine")
    assert torch.equal(model(batch), intact)


def test_a_circuit_without_heads_ablates_nothing(shipped: dict[str, Any]) -> None:
    model, _ = shipped["iwl"]
    batch = tokens(model)
    with circuit().ablate(model):
        assert torch.equal(model(batch), model(batch))
    assert circuit().hooks() == []


def test_what_cannot_be_ablated_is_refused(shipped: dict[str, Any]) -> None:
    model, report = shipped["icl"]
    with (
        pytest.raises(InvalidArgumentError, match="batch of one sequence ablates nothing"),
        report.circuits[0].ablate(model),
    ):
        model(tokens(model, 1))
    with (
        pytest.raises(InvalidArgumentError, match="ablation needs a model that runs; got ModelW"),
        report.circuits[0].ablate(read_weights(model)),
    ):
        pass
    ((_, ablate),) = circuit((0, 0)).hooks()
    with pytest.raises(InvalidArgumentError, match=r"one axis; got hook_z of shape \(2, 3, 8\)"):
        ablate(torch.zeros(2, 3, 8))


def test_patterns_are_the_models_own_in_the_order_of_the_names(shipped: dict[str, Any]) -> None:
    model, report = shipped["icl"]
    found = circuit((1, 1), (0, 0))
    ids = tokens(model)[0]
    seen = found.patterns(model, ids)
    _, cache = model.run_with_cache(ids[None])
    assert found.names == ("L1H1", "L0H0")
    assert seen.shape == (2, 12, 12)
    assert torch.allclose(seen[0], cache["blocks.1.attn.hook_pattern"][0, 1], atol=1e-6)
    assert torch.allclose(seen[1], cache["blocks.0.attn.hook_pattern"][0, 0], atol=1e-6)
    assert torch.equal(found.patterns(model, ids.tolist()), seen)
    assert circuit().patterns(model, ids).shape == (0, 12, 12)
    for model_or_weights, given in ((model, tokens(model)), (read_weights(model), ids)):
        with pytest.raises(InvalidArgumentError, match="patterns are those of a model that runs"):
            found.patterns(model_or_weights, given)
    text = report.circuits[0]._repr_html_()
    assert "induction: L0H0, L0H1, L1H0, L1H1" in text
    assert "L0H0 -K-&gt; L1H0" in text
    assert "embed" not in text
