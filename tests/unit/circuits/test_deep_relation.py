"""The relation of a deep model against a planted association, and against chance."""

import planted
import torch

from imir_detect.circuits.deep_relation import extended_relation
from imir_detect.coordinates.extended import Extended
from imir_detect.routes import _sum_residuals
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights


def take(weights: ModelWeights) -> Extended:
    return Extended.take(
        weights,
        lambda tokens: _sum_residuals(weights, tokens),
        torch.arange(weights.vocab_size),
        min(weights.n_ctx, 14),
        seed=0,
    )


def test_planted_pairs_come_out_and_no_other() -> None:
    pairs = {a: (a + 5) % planted.VOCAB for a in range(8)}
    weights = read_weights(planted.association(pairs))
    relation = extended_relation(weights, take(weights))
    assert dict(relation.pairs()) == pairs


def test_fresh_models_have_none() -> None:
    for seed in range(5):
        weights = read_weights(ModelSpec(200, 14, d_model=32, n_heads=2).boot(seed=seed))
        assert extended_relation(weights, take(weights)).coverage == 0


def test_other_output_tokens_mean_nothing_to_pair() -> None:
    from dataclasses import replace

    weights = read_weights(planted.association({1: 2}))
    other = replace(weights, W_U=weights.W_U[:, :3], b_U=weights.b_U[:3])
    assert extended_relation(other, take(other)).coverage == 0
