"""The coordinate table: fixed rows, and every entry equal to a literal dense computation."""

import pytest
import torch

from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.coordinates.table import coordinate_table, top_share
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights

F64 = torch.float64
RELATION = torch.tensor([1, 0, 3, 2, -1, -1, -1, -1, -1])


def table_of(weights: ModelWeights) -> list:
    tokens = torch.randint(9, (6, 7), generator=torch.Generator().manual_seed(0))
    trace = sum_paths(weights, tokens)
    return list(
        coordinate_table(
            weights, trace, relation=RELATION, tokens=torch.arange(weights.vocab_size), seed=0
        )
    )


@pytest.fixture(scope="module")
def weights() -> ModelWeights:
    return read_weights(ModelSpec(9, 7, n_heads=2, d_model=10, init_range=0.7).boot(seed=0))


def test_every_model_of_a_shape_has_the_same_rows(weights: ModelWeights) -> None:
    other = read_weights(ModelSpec(9, 7, n_heads=2, d_model=10, init_range=0.1).boot(seed=5))
    key = [(c.unit, c.layer, c.head, c.path, c.selection) for c in table_of(weights)]
    assert key == [(c.unit, c.layer, c.head, c.path, c.selection) for c in table_of(other)]
    assert len(set(key)) == len(key)
    # 4 heads x 3 shifts; 2 + 2 x (1 + 2 feeders x 3) matches; 2 x (1 + 4 + 4) read-outs.
    units = [k[0] for k in key]
    assert [units.count(u) for u in ("shift", "match", "copy", "associate")] == [12, 16, 9, 9]


def test_entries_equal_a_dense_computation(weights: ModelWeights) -> None:
    rows = {(c.unit, c.layer, c.head, c.path): c for c in table_of(weights)}
    H = torch.eye(9, dtype=F64) - 1 / 9
    carried = weights.W_E @ weights.W_OV(0, 1)
    S = H @ (weights.W_E @ weights.W_QK(1, 0) @ carried.T) @ H
    off = S[~torch.eye(9, dtype=torch.bool)].mean()
    match = rows[("match", 1, 0, "q:direct k:L0H1")]
    assert match.effect == pytest.approx(float(S.diagonal().mean() - off), abs=1e-9)
    assert match.z == pytest.approx(8 * match.cosine, abs=1e-9)
    logits = weights.W_E @ weights.W_OV(0, 1) @ weights.W_OV(1, 1) @ weights.W_U
    S = H @ logits @ H
    C = torch.zeros(9, 9, dtype=torch.bool)
    C[torch.arange(4), RELATION[:4]] = True
    associate = rows[("associate", 1, 1, "L0H1>L1H1")]
    assert associate.effect == pytest.approx(float(S[C].mean() - S[~C].mean()), abs=1e-9)
    top = (S.argmax(1)[:4] == RELATION[:4]).double().mean()
    assert associate.predicted == pytest.approx(float(top))


def test_predicted_shares_are_shares(weights: ModelWeights) -> None:
    assert all(0 <= c.predicted <= 1 for c in table_of(weights))


def test_shares_of_copying_and_suppression() -> None:
    eye = torch.eye(5, dtype=F64)
    asked = torch.arange(5)
    assert top_share(eye, eye, None, asked) == (1.0, 0.0)
    assert top_share(-eye, eye, None, asked) == (0.0, 1.0)
    assert top_share(torch.ones(5, 5, dtype=F64), eye, None, asked) == (0.0, 0.0)
    # A constant row added to all logits is no copying.
    assert top_share(0 * eye, eye + 9, None, asked) == (0.0, 0.0)
    assert top_share(eye, eye[[1, 0, 2, 3, 4]], torch.tensor([1, 0, -1, -1, -1]), asked) == (
        1.0,
        0.0,
    )
