"""Extended embeddings, what is carried on them and their coordinates, against literal loops."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from imir_detect.coordinates.carried import carry
from imir_detect.coordinates.deep_table import deep_table
from imir_detect.coordinates.effects import read_selection, read_shift
from imir_detect.coordinates.extended import Extended, read_out
from imir_detect.coordinates.table import (
    draw_others,
    match_share,
    token_keys,
    token_queries,
    within,
)
from imir_detect.weights import unembed
from imir_detect.weights.attention import Attention, QKNorm
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights

F64 = torch.float64
VOCAB, LENGTH, SIZE, WIDTH = 13, 6, 10, 8


def random_weights(norm: Any = None, **spec: Any) -> ModelWeights:
    settings = {"n_layers": 2, "n_heads": 2, "d_model": WIDTH, "init_range": 0.5, **spec}
    model = ModelSpec(VOCAB, 9, norm=norm, **settings).boot(seed=1)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return read_weights(model)


class Recorded:
    """A model that answers with random numbers, and remembers what it was asked."""

    def __init__(self, layers: int) -> None:
        self.generator = torch.Generator().manual_seed(7)
        self.layers = layers
        self.asked: list[Tensor] = []
        self.residuals: list[list[Tensor]] = []

    def __call__(self, tokens: Tensor) -> list[Tensor]:
        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=self.generator, dtype=F64) + 0.5

        self.asked.append(tokens)
        self.residuals.append([draw(*tokens.shape, WIDTH) for _ in range(self.layers + 1)])
        return self.residuals[-1]


def taken(weights: ModelWeights) -> tuple[Extended, Recorded]:
    run = Recorded(weights.n_layers)
    vocabulary = torch.arange(2, VOCAB)
    extended = Extended.take(weights, run, vocabulary, LENGTH, tokens=SIZE, occurrences=11, seed=0)
    return extended, run


def occurrences(run: Recorded, extended: Extended) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """(half, index of a token): the (context, place) where it stands, from place 1 on."""
    asked = torch.cat(run.asked).tolist()
    tokens, found = extended.tokens.tolist(), {}
    for context, row in enumerate(asked):
        for place, token in enumerate(row):
            if place > 0:
                key = (int(context >= len(asked) // 2), tokens.index(token))
                found.setdefault(key, []).append((context, place))
    return found


@pytest.mark.parametrize("norm", [None, "RMS"])
def test_extended_embeddings_are_the_means_that_they_say(norm: Any) -> None:
    extended, run = taken(random_weights(norm))
    asked = torch.cat(run.asked)
    # 10 tokens 11 times in rows of 6: 18.3 rows, so 19; batches of at most 8.
    assert asked.shape == (19, LENGTH)
    assert [len(rows) for rows in run.asked] == [8, 8, 3]
    assert extended.contexts == 19
    assert extended.context == LENGTH
    assert len(set(extended.tokens.tolist())) == SIZE
    assert int(extended.tokens.min()) >= 2  # of the vocabulary that was given
    for layer in range(3):
        rows = torch.cat([residuals[layer] for residuals in run.residuals])
        rms = rows.square().mean(-1, keepdim=True).sqrt()
        rms = rms if norm else torch.ones_like(rms)
        unit = rows / rms
        place = unit.mean(0)
        assert torch.allclose(extended.place[layer], place, atol=1e-12)
        assert torch.allclose(extended.rms[layer], rms.mean(0), atol=1e-12)
        for (half, token), where in occurrences(run, extended).items():
            own = torch.stack([unit[c, p] - place[p] for c, p in where]).mean(0)
            assert torch.allclose(extended.own[layer][half, token], own, atol=1e-12)
            later = [unit[c, p + 1] - place[p + 1] for c, p in where if p + 1 < LENGTH]
            if later:
                wanted = torch.stack(later).mean(0)
                assert torch.allclose(extended.before[layer][half, token], wanted, atol=1e-12)


@pytest.mark.parametrize("norm", [None, "RMS", "LN"])
def test_the_named_token_is_the_highest_other_one_of_the_mean_logits(
    norm: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(unembed, "BLOCK", 5)  # 13 tokens in three blocks
    weights = random_weights(norm)
    extended, run = taken(weights)
    last = torch.cat([residuals[-1] for residuals in run.residuals])
    if norm == "LN":
        last = last - last.mean(-1, keepdim=True)
    if norm:
        last = last / (last.square().mean(-1, keepdim=True) + weights.eps).sqrt()
    logits, where = last @ weights.W_U + weights.b_U, occurrences(run, extended)
    for half in range(2):
        table = torch.stack(
            [torch.stack([logits[c, p] for c, p in where[half, t]]).mean(0) for t in range(SIZE)]
        )
        table = table - table.mean(0)
        for token, row in enumerate(table):
            others = {v: float(x) for v, x in enumerate(row) if v != int(extended.tokens[token])}
            best = max(others, key=others.__getitem__)
            rest = torch.tensor([x for v, x in others.items() if v != best], dtype=F64)
            assert int(extended.named[half, token]) == best
            lead, spread = extended.lead[half, token], extended.spread[half, token]
            assert float(lead) == pytest.approx(others[best] - float(rest.mean()), abs=1e-5)
            assert float(spread) == pytest.approx(float(rest.std(correction=0)), abs=1e-5)


def test_a_sample_is_never_larger_than_the_vocabulary_nor_a_row_than_the_sample() -> None:
    weights = random_weights()
    run = Recorded(2)
    extended = Extended.take(weights, run, torch.arange(4), 9, occurrences=1, seed=0)
    assert sorted(extended.tokens.tolist()) == [0, 1, 2, 3]
    # Each half has a context, however few would do.
    assert torch.cat(run.asked).shape == (2, 4)


@pytest.mark.parametrize("norm", [None, "RMS"])
def test_a_read_out_is_what_the_output_value_map_adds_to_the_logits(norm: Any) -> None:
    weights = random_weights(norm)
    extended, _ = taken(weights)
    A, B = read_out(weights, extended, (1, 0))
    own = (extended.own[1][0] + extended.own[1][1]) / 2
    typical = extended.rms[2][1:].mean()
    logits = own @ weights.W_OV(1, 0) @ weights.W_U / typical
    assert torch.allclose(A @ B.T, logits[:, extended.tokens], atol=1e-10)
    other = replace(weights, W_U=weights.W_U[:, :4], b_U=weights.b_U[:4])
    assert read_out(other, extended, (1, 0))[1].shape[0] == 0


# -- what is carried -------------------------------------------------------------------------------


def literal_carry(w: ModelWeights, e: Extended, row: list[int]) -> tuple[list[Any], list[Tensor]]:
    """One context, place by place, without norms of queries and without rotation."""
    size = len(row)
    extra = torch.zeros(size, WIDTH, dtype=F64)
    attention, deviation = [], []
    for layer in range(w.n_layers + 1):
        halves = torch.zeros(2, size, WIDTH, dtype=F64)
        for half in range(2):
            for p in range(size):
                halves[half, p] = extra[p] / e.rms[layer][p]
                if p >= 1:
                    halves[half, p] += e.own[layer][half, row[p]]
                if p >= 2:
                    halves[half, p] += e.before[layer][half, row[p - 1]]
        deviation.append(halves.mean(0))
        if layer == w.n_layers:
            break
        pattern = torch.zeros(w.n_heads, size, size, dtype=F64)
        written = torch.zeros_like(extra)
        for head in range(w.n_heads):
            x = e.place[layer] + halves
            q = x @ w.W_Q[layer, head] + w.b_Q[layer, head]
            k = x @ w.W_K[layer, head] + w.b_K[layer, head]
            for i in range(size):
                scores = [
                    float(q[0, i] @ k[1, j] + q[1, i] @ k[0, j]) / 2 / float(w.scale[layer])
                    for j in range(i + 1)
                ]
                total = sum(map(math.exp, scores))
                for j, score in enumerate(scores):
                    pattern[head, i, j] = math.exp(score) / total
                    matches = row[j] == row[i] or (j >= 1 and row[j - 1] == row[i])
                    if matches and 1 <= j < i:
                        moved = deviation[-1][j] @ w.W_V[layer, head] @ w.W_O[layer, head]
                        written[i] += pattern[head, i, j] * moved
        attention.append(pattern)
        extra = extra + written
    return attention, deviation


def test_attention_is_carried_as_place_by_place() -> None:
    weights = random_weights()
    extended, _ = taken(weights)
    index = torch.tensor([[3, 1, 4, 1, 4, 9], [0, 1, 2, 3, 4, 5], [5, 5, 2, 8, 2, 5]])
    found = carry(weights, extended, index)
    assert torch.equal(found.index, index)
    for n, row in enumerate(index.tolist()):
        attention, deviation = literal_carry(weights, extended, row)
        for layer in range(2):
            assert torch.allclose(found.attention[layer][n], attention[layer], atol=1e-10)
        for layer in range(3):
            assert torch.allclose(found.deviation[layer][n], deviation[layer], atol=1e-10)


# -- the table -------------------------------------------------------------------------------------


def normed_keys(weights: ModelWeights) -> ModelWeights:
    generator = torch.Generator().manual_seed(5)
    width = weights.W_Q.shape[-1]
    gains = [1 + 0.3 * torch.randn(2, width, generator=generator, dtype=F64) for _ in range(2)]
    kind = Attention(qk_norm=QKNorm(gains[0], gains[1], together=False, eps=1e-6))
    return replace(weights, attention=(kind,) * weights.n_layers)


def sloped(weights: ModelWeights) -> ModelWeights:
    kind = Attention(slopes=torch.tensor([0.5, 0.25], dtype=F64))
    return replace(weights, attention=(kind,) * weights.n_layers)


CASES: dict[str, Any] = {
    "plain": lambda: random_weights(),
    "slopes": lambda: sloped(random_weights()),
    "query-key norm": lambda: normed_keys(random_weights()),
}


@pytest.mark.parametrize("name", CASES)
def test_deep_coordinates_are_readings_of_the_dense_tables(name: str) -> None:
    weights = CASES[name]()
    extended, _ = taken(weights)
    generator = torch.Generator().manual_seed(3)
    plain = carry(weights, extended, torch.randint(SIZE, (4, LENGTH), generator=generator))
    relation = torch.full((VOCAB,), -1)
    relation[extended.tokens[:3]] = extended.tokens[3:6]
    table = deep_table(weights, extended, plain, relation=relation, seed=0)
    rows = {(c.unit, c.layer, c.head, c.path, c.selection): c for c in table}
    assert len(rows) == len(table) == 4 * (3 + 2 + 2)
    layer, head = 1, 1
    x = extended.place[layer][1:]
    q = x @ weights.W_Q[layer, head] + weights.b_Q[layer, head]
    k = x @ weights.W_K[layer, head] + weights.b_K[layer, head]
    norm = weights.attention[layer].qk_norm
    f = g = gain_q = gain_k = torch.ones(1, dtype=F64)
    if norm is not None:
        f, g = ((r.square().mean(-1, keepdim=True) + norm.eps).rsqrt() for r in (q, k))
        gain_q, gain_k = norm.query_gain[head], norm.key_gain[head]
    S = (q * f * gain_q) @ (k * g * gain_k).T / weights.scale[layer]
    if weights.attention[layer].slopes is not None:
        back = torch.arange(5)[:, None] - torch.arange(5)
        S = S - weights.attention[layer].slopes[head] * back
    for offset in (1, 2, 3):
        found, wanted = rows["shift", 1, 1, "place", f"shift {offset}"], read_shift(S, offset)
        assert found.effect == pytest.approx(wanted.effect, abs=1e-9)
        assert found.cosine == pytest.approx(wanted.cosine, abs=1e-9)
        seen = [plain.attention[1][:, 1, i, i - offset].mean() for i in range(offset, LENGTH)]
        assert found.predicted == pytest.approx(float(torch.stack(seen).mean()))
    A = extended.own[1][0] @ weights.W_Q[1, 1] / weights.scale[1] * f.mean() * gain_q
    for path, side in (("q:own k:own", extended.own), ("q:own k:before", extended.before)):
        B = side[1][1] @ weights.W_K[1, 1] * g.mean() * gain_k
        found, wanted = rows["match", 1, 1, path, "identity"], read_selection(A, B)
        assert found.effect == pytest.approx(wanted.effect, rel=1e-9)
        assert (found.cosine, found.z) == (pytest.approx(wanted.cosine), pytest.approx(wanted.z))
    A, B = read_out(weights, extended, (1, 1))
    partner = torch.tensor([3, 4, 5] + [-1] * 7)
    for unit, name, to in (("copy", "identity", None), ("associate", "association", partner)):
        found, wanted = rows[unit, 1, 1, "L1H1", name], read_selection(A, B, to)
        assert found.effect == pytest.approx(wanted.effect, rel=1e-9)
        S = (A - A.mean(0)) @ B.T
        pairs = [(i, i if to is None else int(to[i])) for i in range(SIZE)]
        tops = [int(S[i].argmax()) == j for i, j in pairs if j >= 0]
        assert found.predicted == pytest.approx(sum(tops) / len(tops))


def test_shifts_beyond_the_context_have_no_attention() -> None:
    weights = random_weights()
    extended, _ = taken(weights)
    short = replace(
        extended,
        place=tuple(p[:3] for p in extended.place),
        rms=tuple(r[:3] for r in extended.rms),
    )
    plain = carry(weights, short, torch.tensor([[0, 1, 2]]))
    rows = deep_table(weights, short, plain, relation=torch.full((VOCAB,), -1), seed=0)
    shifts = [c for c in rows if c.unit == "shift" and (c.layer, c.head) == (0, 0)]
    # Places 1 and 2 are read: one back exists, two back is position 0 and counts as attention only.
    pattern = plain.attention[0][0, 0]
    assert [c.predicted for c in shifts] == pytest.approx(
        [float((pattern[1, 0] + pattern[2, 1]) / 2), float(pattern[2, 0]), 0.0]
    )


# -- parts of the table ----------------------------------------------------------------------------


def test_others_are_never_the_token_asked_for() -> None:
    asked = torch.arange(5).repeat(200)
    others = draw_others(asked, 5, 4, generator=torch.Generator().manual_seed(0))
    assert not (others == asked[:, None]).any()
    for token in range(5):
        counts = torch.bincount(others[asked == token].flatten(), minlength=5)
        assert counts[token] == 0
        assert counts.sum() == 800
        assert int(counts[torch.arange(5) != token].min()) > 150  # of 200 expected each
    assert draw_others(torch.tensor([0]), 1, 3, generator=torch.Generator()).tolist() == [[0] * 3]


def test_the_share_of_a_match_is_a_softmax_by_hand() -> None:
    A = torch.tensor([[math.log(3.0)], [0.0]], dtype=F64)
    B = torch.tensor([[1.0], [0.0]], dtype=F64)
    others = torch.tensor([[1, 1], [0, 0]])
    # Token 0: 3 against 1 and 1; token 1: all alike.
    assert match_share(A, B, torch.arange(2), others) == pytest.approx((3 / 5 + 1 / 3) / 2)


def test_a_relation_within_some_tokens() -> None:
    relation = torch.tensor([1, 0, 5, -1, 3, 2])
    assert within(relation, torch.tensor([1, 2, 4, 5])).tolist() == [-1, 3, -1, 1]
    assert within(None, torch.arange(3)).tolist() == [-1, -1, -1]


def test_rotated_queries_are_averaged_over_the_distances_of_the_context() -> None:
    weights = random_weights(position="rotary")
    rotary = weights.attention[0].rotary
    rows = weights.W_E[:4]
    queries = rows @ weights.W_Q[0, 1] / weights.scale[0]
    turned = torch.stack(
        [rotary.rotate(queries[None], torch.tensor([d] * 4))[0] for d in range(1, 5)]
    )
    found = token_queries(weights, 0, 1, rows, None, 5)
    assert torch.allclose(found, turned.mean(0), atol=1e-10)
    assert torch.allclose(token_keys(weights, 0, 1, rows, None), rows @ weights.W_K[0, 1])
    one = token_queries(weights, 0, 1, rows, None, 1)  # a context of one place: one back
    assert torch.allclose(one, turned[0], atol=1e-10)
