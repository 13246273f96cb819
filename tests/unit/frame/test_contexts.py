"""Contexts hold what they say: one match where one is asked for, none where none is."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.contexts import asking_contexts, distinct_tokens, repeated_contexts
from imir_detect.frame.lookups import INDUCTION, Lookup, matching_contexts, without_match


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=40, deadline=None)
@given(st.integers(4, 12), st.integers(0, 3), st.integers(0, 99), st.booleans())
def test_a_match_is_the_only_repeat(length: int, offset: int, seed: int, asked: bool) -> None:
    if length < offset + 2:
        return
    vocabulary = torch.arange(5, 5 + length + 3)
    some = vocabulary[:4] if asked else None
    contexts = matching_contexts(
        20, length, vocabulary, Lookup(offset), asked=some, generator=generator(seed)
    )
    for row, i, p, wanted in zip(
        *map(
            torch.Tensor.tolist, (contexts.tokens, contexts.query, contexts.match, contexts.wanted)
        ),
        strict=True,
    ):
        assert row[i] == row[p]
        assert row[p + offset] == wanted
        assert p + offset < i
        assert len(set(row)) == length - 1  # one token twice, all others once
        if asked:
            assert {row[i], wanted} <= set(vocabulary[:4].tolist())


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 12), st.integers(0, 99))
def test_without_match_loses_the_match_and_nothing_else(length: int, seed: int) -> None:
    vocabulary = torch.arange(length + 2)
    g = generator(seed)
    contexts = matching_contexts(20, length, vocabulary, generator=g)
    plain = without_match(contexts, generator=g)
    changed = contexts.tokens != plain.tokens
    assert torch.equal(changed.nonzero()[:, 1], contexts.match)
    assert all(len(set(row)) == length for row in plain.tokens.tolist())
    assert torch.equal(plain.wanted, contexts.wanted)


def test_cells_restrict_where_query_and_copy_stand() -> None:
    cells = torch.zeros(9, 9, dtype=torch.bool)
    cells[8, 2] = cells[5, 1] = True
    contexts = matching_contexts(50, 9, torch.arange(20), cells=cells, generator=generator(0))
    seen = set(zip(contexts.query.tolist(), contexts.match.tolist(), strict=True))
    assert seen == {(8, 2), (5, 1)}
    assert int(INDUCTION.cells(4).sum()) == 3  # (2, 0), (3, 0), (3, 1)


def test_asking_contexts_hold_neither_query_nor_answer_before_the_query() -> None:
    queries, wanted = torch.arange(6).repeat(20), torch.arange(6, 12).repeat(20)
    contexts = asking_contexts(queries, wanted, 8, torch.arange(14), generator=generator(1))
    for row, i, q, a in zip(
        *map(torch.Tensor.tolist, (contexts.tokens, contexts.query, queries, wanted)), strict=True
    ):
        assert row[i] == q
        assert q not in row[:i]
        assert a not in row[:i]


def test_repeated_contexts_repeat_and_never_exceed_the_vocabulary() -> None:
    tokens, period = repeated_contexts(5, 13, torch.arange(40), generator=generator(0))
    assert period == 6
    assert torch.equal(tokens[:, :6], tokens[:, 6:12])
    assert repeated_contexts(5, 13, torch.arange(4), generator=generator(0))[1] == 4


def test_a_large_vocabulary_gives_distinct_rows_too() -> None:
    rows = distinct_tokens(200, 60, torch.arange(5000), generator=generator(0))
    assert all(len(set(row)) == 60 for row in rows.tolist())


def test_a_context_too_short_for_the_question_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="got 3 positions; wanted at least 4"):
        matching_contexts(1, 3, torch.arange(9), Lookup(2), generator=generator(0))
    with pytest.raises(InvalidArgumentError, match="too short"):
        asking_contexts(
            torch.tensor([0]), torch.tensor([1]), 1, torch.arange(9), generator=generator(0)
        )
