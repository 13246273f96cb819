"""Every kind of row of the coordinate table against dense products, with typical norms."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from imir_detect.coordinates.effects import read_selection, read_shift
from imir_detect.coordinates.pathsum import Trace, sum_paths
from imir_detect.coordinates.table import Coordinate, coordinate_table, top_share
from imir_detect.frame.names import Path
from imir_detect.weights.attention import Attention, QKNorm
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights

F64 = torch.float64
VOCAB, CONTEXT, WIDTH = 9, 6, 12
RELATION = torch.tensor([1, 0, 3, 2, 7, -1, -1, -1, -1])
ALL = torch.arange(VOCAB)


def random_weights(**spec: Any) -> ModelWeights:
    settings = {"n_heads": 2, "d_model": WIDTH, "init_range": 0.6, "norm": "RMS", **spec}
    model = ModelSpec(VOCAB, CONTEXT, **settings).boot(seed=4)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return read_weights(model)


def normed_keys(weights: ModelWeights) -> ModelWeights:
    generator = torch.Generator().manual_seed(5)
    gains = [1 + 0.3 * torch.randn(2, WIDTH // 2, generator=generator, dtype=F64) for _ in "qk"]
    kind = Attention(qk_norm=QKNorm(gains[0], gains[1], together=False, eps=1e-6))
    return replace(weights, attention=(kind,) * weights.n_layers)


def sloped(weights: ModelWeights) -> ModelWeights:
    kind = Attention(slopes=torch.tensor([0.5, 0.25], dtype=F64))
    return replace(weights, attention=(kind,) * weights.n_layers)


CASES: dict[str, Any] = {
    "norms": lambda: random_weights(),
    "slopes": lambda: sloped(random_weights()),
    "query-key norm": lambda: normed_keys(random_weights()),
    "rotary": lambda: random_weights(position="rotary"),
}


def traced(weights: ModelWeights) -> Trace:
    tokens = torch.randint(VOCAB, (5, CONTEXT), generator=torch.Generator().manual_seed(1))
    return sum_paths(weights, tokens)


def read(weights: ModelWeights, trace: Trace, tokens: Tensor) -> list[Coordinate]:
    return list(coordinate_table(weights, trace, relation=RELATION, tokens=tokens, seed=0))


class Literal:
    """Dense tables of one model, from typical norms: means over the trace's contexts."""

    def __init__(self, weights: ModelWeights, trace: Trace, tokens: Tensor) -> None:
        self.w, self.trace, self.tokens = weights, trace, tokens
        self.norm = [f.mean() for f in trace.inverse_rms]

    def carried(self, path: Path) -> Tensor:
        rows = self.w.W_E[self.tokens]
        for layer, head in path.heads:
            rows = self.norm[layer] * rows @ self.w.W_OV(layer, head)
        return rows

    def factors(self, layer: int, head: int) -> tuple[Any, Any]:
        norm, both = self.w.attention[layer].qk_norm, self.trace.qk_factors[layer]
        if norm is None or both is None:
            return 1.0, 1.0
        f, g = (factor[:, head].mean() for factor in both)
        return f * norm.query_gain[head], g * norm.key_gain[head]

    def match(self, layer: int, head: int, query: Path, key: Path) -> tuple[Tensor, Tensor]:
        f, g = self.factors(layer, head)
        q = self.norm[layer] * self.carried(query) @ self.w.W_Q[layer, head] * f
        q = q / self.w.scale[layer]
        rotary = self.w.attention[layer].rotary
        if rotary is not None:
            turned = [rotary.rotate(q, torch.full((len(q),), d)) for d in range(1, CONTEXT)]
            q = torch.stack(turned).mean(0)
        return q, self.norm[layer] * self.carried(key) @ self.w.W_K[layer, head] * g

    def shift(self, layer: int, head: int) -> Tensor:
        w, (f, g) = self.w, self.factors(layer, head)
        kind = w.attention[layer]
        x = w.W_pos if w.learned_positions else w.W_E[self.tokens].mean(0).expand(CONTEXT, -1)
        x = self.norm[layer] * x
        q = (x @ w.W_Q[layer, head] + w.b_Q[layer, head]) * f
        k = (x @ w.W_K[layer, head] + w.b_K[layer, head]) * g
        place = torch.arange(CONTEXT)
        if kind.rotary is not None:
            q, k = kind.rotary.rotate(q, place), kind.rotary.rotate(k, place)
        S = q @ k.T / w.scale[layer]
        return S if kind.slopes is None else S - kind.slopes[head] * (place[:, None] - place)


def path_of(text: str) -> Path:
    if text == "direct":
        return Path()
    heads = [step[1:].split("H") for step in text.split(">")]
    return Path(tuple((int(layer), int(head)) for layer, head in heads))


@pytest.mark.parametrize("name", CASES)
def test_every_row_is_the_reading_of_its_dense_table(name: str) -> None:
    weights = CASES[name]()
    trace = traced(weights)
    literal = Literal(weights, trace, ALL)
    rows = read(weights, trace, ALL)
    assert len(rows) == 12 + 16 + 2 * 9
    for row in rows:
        layer, head = row.layer or 0, row.head or 0
        if row.unit == "shift":
            offset = int(row.selection.split()[1])
            wanted = read_shift(literal.shift(layer, head), offset)
            pattern = trace.attention[layer][:, head]
            seen = [pattern[:, i, i - offset].mean() for i in range(offset, CONTEXT)]
            assert row.predicted == pytest.approx(float(torch.stack(seen).mean()))
        elif row.unit == "match":
            query, key = (path_of(part[2:]) for part in row.path.split(" "))
            wanted = read_selection(*literal.match(layer, head, query, key))
        else:
            A = literal.norm[-1] * literal.carried(path_of(row.path))
            partner = None if row.unit == "copy" else RELATION
            wanted = read_selection(A, weights.W_U.T, partner)
            S = (A - A.mean(0)) @ weights.W_U
            pairs = [(i, i if partner is None else int(partner[i])) for i in range(VOCAB)]
            tops = [float(int(S[i].argmax()) == j) for i, j in pairs if j >= 0]
            assert row.predicted == pytest.approx(sum(tops) / len(tops))
            assert (row.layer, row.head) == (
                path_of(row.path).heads[-1] if row.path != "direct" else (None, None)
            )
        for field in ("effect", "cosine", "z"):
            found, value = getattr(row, field), getattr(wanted, field)
            assert found == (value if value is None else pytest.approx(value, abs=1e-9)), row


def test_predicted_attention_of_a_match_between_two_tokens_by_hand() -> None:
    """Of two tokens all others are the other one: context - 1 of it stand against the own key."""
    weights = random_weights()
    trace, tokens = traced(weights), torch.tensor([3, 5])
    literal = Literal(weights, trace, tokens)
    for row in read(weights, trace, tokens):
        if row.unit == "match":
            query, key = (path_of(part[2:]) for part in row.path.split(" "))
            A, B = literal.match(row.layer or 0, row.head or 0, query, key)
            S = (A @ B.T).exp()
            shares = [S[i, i] / (S[i, i] + (CONTEXT - 1) * S[i, 1 - i]) for i in range(2)]
            assert row.predicted == pytest.approx(float(sum(shares)) / 2)


def test_of_many_tokens_a_seeded_sample_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = random_weights()
    trace = traced(weights)
    monkeypatch.setattr("imir_detect.coordinates.table.MOST_TOKENS", 5)

    def copied(tokens: Tensor) -> float:
        return next(r.effect for r in read(weights, trace, tokens) if r.unit == "copy")

    found = copied(ALL)
    assert found == copied(ALL)
    A, B = trace.inverse_rms[-1].mean() * weights.W_E, weights.W_U.T
    some = (list(chosen) for chosen in combinations(range(VOCAB), 5))
    every = [read_selection(A[chosen], B[chosen]).effect for chosen in some]
    assert sum(value == pytest.approx(found, rel=1e-12) for value in every) == 1


def test_read_outs_of_another_vocabulary_are_zero() -> None:
    weights = random_weights()
    cut = replace(weights, W_U=weights.W_U[:, :4], b_U=weights.b_U[:4])
    rows = [r for r in read(cut, traced(cut), ALL) if r.unit in ("copy", "associate")]
    assert {(r.effect, r.cosine, r.z, r.predicted) for r in rows} == {(0.0, 0.0, 0.0, 0.0)}
    assert len(rows) == 18


def test_without_a_relation_nothing_is_associated() -> None:
    weights = random_weights()
    rows = coordinate_table(weights, traced(weights), relation=None, tokens=ALL, seed=0)
    assert {r.effect for r in rows if r.unit == "associate"} == {0.0}


def test_shares_of_top_and_bottom_by_hand() -> None:
    eye = torch.eye(3, dtype=F64)
    B = torch.tensor([[3.0, 2, 0], [1.0, 2, 0], [0, 0, 0]], dtype=F64)
    # Rows less their mean: [1.67 -.33 -.33], ...: S = columns of B weighted.
    S = (eye - 1 / 3) @ B.T
    asked = torch.tensor([0, 2])
    tops = [int(S[i].argmax()) == i for i in (0, 2)]
    lows = [int(S[i].argmin()) == i for i in (0, 2)]
    assert top_share(eye, B, None, asked) == (sum(tops) / 2, sum(lows) / 2)
    assert top_share(eye, B, torch.full((3,), -1), asked) == (0.0, 0.0)
    # A lead of round-off is a tie.
    near = torch.tensor([[1, 0, 0], [1 - 1e-12, 0, 0], [0, 1, 0]], dtype=F64)
    assert top_share(eye, near, None, torch.tensor([0])) == (0.0, 0.0)
    clear = torch.tensor([[1, 0, 0], [1 - 1e-6, 0, 0], [0, 1, 0]], dtype=F64)
    assert top_share(eye, clear, None, torch.tensor([0])) == (1.0, 0.0)
