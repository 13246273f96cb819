"""Separators stand where a template says, and lookups with them tie together only other tokens."""

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.lookups import Lookup, matching_contexts, without_match
from imir_detect.frame.template import Template

LENGTH = 14
VOCABULARY = torch.arange(30)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_places_and_the_rest_of_the_vocabulary_by_hand() -> None:
    template = Template((2, 5), period=3, start=1)
    assert template.places(8).nonzero()[:, 0].tolist() == [1, 4, 7]
    assert template.rest(torch.arange(7)).tolist() == [0, 1, 3, 4, 6]
    assert str(template) == "tokens 2, 5 at places 1, 4, ..."


def test_what_is_allowed_at_a_place_is_drawn_there() -> None:
    template = Template((2, 5), period=3, start=1, allowed=((5,), (2,)))
    written = template.write(torch.zeros(200, 9).long(), generator=generator())
    assert set(written[:, 1].tolist()) == {5}
    assert set(written[:, 4].tolist()) == {2}
    assert set(written[:, 7].tolist()) == {2, 5}  # beyond what is said: any
    assert written[:, [0, 2, 3, 5, 6, 8]].sum() == 0


def test_another_separator_is_any_but_the_one_given() -> None:
    template = Template((3, 4, 9), period=2, start=0)
    given_tokens = torch.tensor([3, 4, 9] * 100)
    other = template.another(given_tokens, generator=generator())
    assert (other != given_tokens).all()
    for token, rest in ((3, {4, 9}), (4, {3, 9}), (9, {3, 4})):
        assert set(other[given_tokens == token].tolist()) == rest


def lookups(template: Template) -> list[Lookup]:
    lagged = [Lookup(offset, lag=1, template=template) for offset in (2, -2, 1, -1)]
    return [Lookup(template=template), Lookup(prefix=2, template=template), *lagged]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4), st.integers(0, 3), st.integers(0, 5), st.integers(0, 99))
def test_only_what_a_lookup_speaks_of_repeats_and_separators_keep_their_places(
    period: int, start: int, number: int, seed: int
) -> None:
    template = Template((4, 11, 17), period, start % period)
    lookup = lookups(template)[number]
    if not lookup.cells(LENGTH).any():
        return
    contexts = matching_contexts(40, LENGTH, VOCABULARY, lookup, generator=generator(seed))
    control = without_match(contexts, lookup, generator=generator(seed + 1))
    separates = template.places(LENGTH)
    held = torch.tensor(template.separators)
    for made in (contexts, control):
        assert torch.isin(made.tokens[:, separates], held).all()
        assert not torch.isin(made.tokens[:, ~separates], held).any()
    rows, at, match = contexts.rows, contexts.query - lookup.lag, contexts.match
    assert torch.equal(contexts.tokens[rows, at], contexts.tokens[rows, match])
    assert torch.equal(contexts.tokens[rows, match + lookup.offset], contexts.wanted)
    assert (separates[contexts.query] == (lookup.lag == 1)).all()
    repeats = 1 + (lookup.prefix - 1)
    for row in contexts.tokens[:, ~separates].tolist():
        assert len(set(row)) == len(row) - repeats
    if lookup.prefix == 1:
        assert (control.tokens[rows, match] != control.tokens[rows, at]).all()
    else:
        rival = contexts.links[:, 0]
        before = contexts.tokens[rows, contexts.query - 1]
        assert torch.equal(before, contexts.tokens[rows, match - 1])
        assert (before != contexts.tokens[rows, rival - 1]).all()
        assert torch.equal(before, control.tokens[rows, rival - 1])


@pytest.mark.parametrize(
    ("lookup", "cells"),
    [
        # Separators at 0, 3, 6: the query and the copy stand elsewhere, and so does what is wanted.
        (Lookup(template=Template((0,), 3, 0)), {(4, 1), (5, 1), (7, 1), (7, 4)}),
        # Both stand behind a separator.
        (Lookup(prefix=2, template=Template((0, 1), 3, 0)), {(4, 1), (7, 1), (7, 4)}),
        # The query is a separator, the token before it stood earlier.
        (Lookup(1, lag=1, template=Template((0,), 3, 0)), {(6, 1)}),
        (Lookup(-1, lag=1, template=Template((0,), 3, 0)), {(6, 2)}),
    ],
)
def test_cells_by_hand(lookup: Lookup, cells: set[tuple[int, int]]) -> None:
    found = {tuple(pair) for pair in lookup.cells(8).nonzero().tolist()}
    assert found == cells


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"lag": 2}, "lag=2"),
        ({"lag": -1}, "lag=-1"),
        ({"lag": 1, "prefix": 2}, "lag=1, prefix=2, hops=1"),
        ({"lag": 1, "hops": 2}, "lag=1, prefix=1, hops=2"),
        ({"hops": 2, "template": Template((0, 1), 3, 0)}, "hops=2, with separators"),
        ({"prefix": 2, "template": Template((4,), 3, 0)}, "got 1 separator; wanted at least 2"),
    ],
)
def test_lookups_that_no_context_asks_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(text)):
        Lookup(**settings)
