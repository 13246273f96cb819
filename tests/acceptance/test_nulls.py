"""Fresh models hold nothing, at any scale: no circuit that works, no typed head."""

import families
import pytest

from imir_detect import detect_circuits
from imir_detect.circuits.core import IN_CONTEXT
from imir_detect.weights.native import ModelSpec


@pytest.mark.parametrize("scale", [None, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("norm", [None, "LN"])
def test_fresh_models_get_none(scale: float | None, norm: str | None) -> None:
    for seed in range(2):
        spec = ModelSpec(
            24,
            16,
            n_layers=3,
            n_heads=4,
            d_model=32,
            norm=norm,
            init_range=scale,  # type: ignore[arg-type]
        )
        report = detect_circuits(spec.boot(seed=seed), seed=seed)
        assert report.label == "none"
        assert report.probabilities["none"] > 0.9
        assert set(report.heads.column("role")) == {"none"}
        assert not [c for c in report.circuits if c.works]
        assert report.meta["relation"]["named"] == 0


def test_a_fresh_model_whose_parts_agree_by_chance_gets_no_relation() -> None:
    """The one of 1,520 that did: 8 of 40 tokens, three of which name the same partner."""
    model = families.wrapped("OlmoForCausalLM", seed=1, scale=None)
    report = detect_circuits(model, context=12, seed=1)
    assert report.meta["relation"]["named"] == 0
    assert report.circuits == ()
    assert report.label == "none"


@pytest.mark.parametrize("n_ctx", range(2, 9))
@pytest.mark.parametrize("layers", [1, 5])
def test_short_contexts_leave_out_what_has_no_room(n_ctx: int, layers: int) -> None:
    spec = ModelSpec(5, n_ctx, n_layers=layers, n_heads=1, d_model=8, init_range=1.0)
    report = detect_circuits(spec.boot(seed=n_ctx))
    assert not [c for c in report.circuits if c.works and c.kind in IN_CONTEXT]
