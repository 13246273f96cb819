"""Burstiness, f_r, f_v, presence, Zipf and noise: measured on samples, equal to what was asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from task_cases import labelled

from imir_detect.tasks import AssociativeRecall, Batch, OffsetCopy

N = 20_000
SIGMA = 4.5  # a two-sided tail of 7e-6; seeds are fixed


def draw(task: Any, n: int = N, seed: int = 11) -> Batch:
    return task.sample(n, generator=torch.Generator().manual_seed(seed))


def assert_share(hits: torch.Tensor, chance: float) -> None:
    """A share equals a chance within sampling error."""
    error = (chance * (1 - chance) / len(hits)) ** 0.5
    assert abs(float(hits.double().mean()) - chance) <= SIGMA * error + 1e-12


def blocks(task: AssociativeRecall, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    pairs = batch.tokens[:, :-1].view(len(batch), task.n_blocks, 2)
    return pairs[..., 0], pairs[..., 1]


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    rare=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    fresh=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    present=st.sampled_from([0.0, 0.3, 1.0]),
    burstiness=st.integers(1, 4),
    directed=st.booleans(),
)
def test_recall_has_the_statistics_that_were_asked(
    rare: float, fresh: float, present: float, burstiness: int, directed: bool
) -> None:
    task = AssociativeRecall(
        n_blocks=5,
        rare_frequency=rare,
        variability=fresh,
        present=present,
        burstiness=burstiness,
        directed=directed,
    )
    batch = draw(task)
    query, answer = batch.tokens[:, -1], batch.targets[:, -1]
    keys, values = blocks(task, batch)
    is_rare = query >= task.n_common
    assert_share(is_rare, rare)
    common, partner = ~is_rare, task.relation[query]
    is_fresh = (answer != partner)[common]
    if len(is_fresh):
        assert_share(is_fresh, fresh)
    times = (keys == query[:, None]).sum(dim=1)
    shown = times > 0
    assert set(times.unique().tolist()) <= {0, burstiness}
    assert bool(shown[is_rare].all())
    assert bool(shown[common][is_fresh].all())
    by_relation = shown[common & (answer == partner)]
    if len(by_relation):
        assert_share(by_relation, present)
    # Other blocks follow the same frequencies.
    other = keys != query[:, None]
    assert_share((keys >= task.n_common)[other], rare)
    common_blocks = other & (keys < task.n_common)
    if bool(common_blocks.any()):
        assert_share((values != task.relation[keys])[common_blocks], fresh)


@pytest.mark.parametrize("zipf", [0.0, 0.5, 1.0, 2.0])
def test_pairs_of_the_query_follow_zipf(zipf: float) -> None:
    task = AssociativeRecall(rare_frequency=0.0, n_rare=0, zipf=zipf)
    pair = draw(task).tokens[:, -1] // 2
    assert_zipf(pair, task.n_common // 2, zipf)


@pytest.mark.parametrize("zipf", [0.0, 1.0, 1.7])
def test_tokens_of_the_copying_controls_follow_zipf(zipf: float) -> None:
    assert_zipf(draw(OffsetCopy(zipf=zipf), 4000).tokens.flatten(), 32, zipf)


def assert_zipf(index: torch.Tensor, size: int, exponent: float) -> None:
    weights = torch.arange(1, size + 1, dtype=torch.float64) ** -exponent
    expected = weights / weights.sum() * len(index)
    seen = index.bincount(minlength=size).double()
    keep = expected >= 5
    statistic = float(((seen - expected) ** 2 / expected)[keep].sum())
    assert chi2.sf(statistic, int(keep.sum()) - 1) > 1e-5


@pytest.mark.parametrize(
    ("name", "stride", "column"),
    [("ngram", 3, 0), ("k_hop", 2, 0), ("inversion", 2, 1), ("conditional", 3, 1)],
)
@pytest.mark.parametrize("burstiness", [1, 3])
def test_the_query_s_block_stands_as_often_as_asked(
    name: str, stride: int, column: int, burstiness: int
) -> None:
    task = labelled((name, {"n_blocks": 8 if burstiness == 1 else 10, "burstiness": burstiness}))
    batch = draw(task, 2000)
    lengths = task.block_lengths  # type: ignore[attr-defined]
    width = lengths[-1]
    context = batch.tokens[:, :-width].view(2000, -1, stride)
    start = column if width == 1 else 0
    query = batch.tokens[:, None, -width:]
    times = (context[..., start : start + width] == query).all(dim=-1).sum(dim=1)
    assert times.unique().tolist() == [burstiness]


def test_the_subject_s_sentence_stands_as_often_as_asked() -> None:
    batch = draw(labelled(("ioi", {"n_blocks": 4, "burstiness": 3})), 2000)
    times = (batch.tokens[:, :-2] == batch.tokens[:, -2, None]).sum(dim=1)
    assert times.unique().tolist() == [3]


def test_presence_in_ngrams() -> None:
    task = labelled(("ngram", {"present": 0.3}))
    assert_share(draw(task).answer_position[:, -1] >= 0, 0.3)


@pytest.mark.parametrize("name", ["recall", "k_hop", "periodic", "sorting"])
def test_label_noise_replaces_a_share_of_the_targets(name: str) -> None:
    task = labelled((name, {"label_noise": 0.25}))
    batch = draw(task, 8000)
    asked = batch.answer_position >= 0
    truth = batch.tokens.gather(1, batch.answer_position.clamp(min=0))
    kept = (batch.targets == truth)[asked]
    assert_share(kept, 0.75 + 0.25 / task.vocab_size)


def test_query_never_first_and_spread_evenly_elsewhere() -> None:
    for name, knobs in (("recall", {}), ("k_hop", {}), ("inversion", {}), ("ioi", {"n_blocks": 6})):
        task = labelled((name, {**knobs, "query_never_first": True}))
        batch = draw(task)
        stride = task.block_lengths[0]  # type: ignore[attr-defined]
        hops = name == "k_hop"
        where = batch.tokens[:, 0::2][:, :-1] if hops else None
        place = (
            (where == batch.tokens[:, -1:]).long().argmax(dim=1)
            if where is not None
            else batch.answer_position[:, -1] // stride
        )
        counts = place.bincount(minlength=task.n_blocks).double()  # type: ignore[attr-defined]
        assert counts[0] == 0
        expected = N / (len(counts) - 1)
        statistic = float(((counts[1:] - expected) ** 2 / expected).sum())
        assert chi2.sf(statistic, len(counts) - 2) > 1e-5
