"""Questions are asked of every model, however small, and wherever it answers."""

import pytest

from imir_detect import detect_circuits
from imir_detect.weights.native import ModelSpec


@pytest.mark.parametrize(("vocabulary", "length"), [(4, 3), (5, 5), (12, 6)])
@pytest.mark.parametrize("scale", [None, 1.0])
def test_models_of_a_few_tokens_and_places_are_read(vocabulary, length, scale) -> None:
    for seed in range(2):
        spec = ModelSpec(vocabulary, length, n_heads=2, d_model=8, init_range=scale)
        model = spec.boot(seed=seed)
        for relation in (None, {0: 1}, {0: 1, 1: 2, 2: 0}):
            report = detect_circuits(model, relation=relation)
            assert set(report.meta["predicted_accuracy"]) == {"icl", "iwl"}
            assert all(0 <= share <= 1 for share in report.meta["predicted_accuracy"].values())
