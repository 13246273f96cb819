"""A lookup's contexts tie together what it says and nothing else; its control undoes just that."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.contexts import Contexts
from imir_detect.frame.lookups import Lookup, matching_contexts, without_match


def drawn(lookup: Lookup, length: int, seed: int) -> tuple[Contexts, Contexts]:
    g = torch.Generator().manual_seed(seed)
    contexts = matching_contexts(40, length, torch.arange(length + 4), lookup, generator=g)
    return contexts, without_match(contexts, lookup, generator=g)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 4), st.integers(0, 99))
def test_hops_lead_from_one_copy_to_the_next(hops: int, seed: int) -> None:
    lookup = Lookup(hops=hops)
    length = lookup.least + 3
    contexts, control = drawn(lookup, length, seed)
    assert len(contexts) > 0
    for k, (row, i) in enumerate(
        zip(contexts.tokens.tolist(), contexts.query.tolist(), strict=True)
    ):
        token = row[i]
        for place in contexts.links[k].tolist():
            assert place + 1 < i
            assert row[place] == token
            token = row[place + 1]
        assert token == contexts.wanted[k]
        assert len(set(row)) == length - hops  # one repeat a hop, no other
    changed = (contexts.tokens != control.tokens).nonzero()
    assert torch.equal(changed[:, 1], contexts.match)


@settings(max_examples=20, deadline=None)
@given(st.integers(9, 14), st.integers(0, 99))
def test_a_prefix_tells_two_copies_apart(length: int, seed: int) -> None:
    contexts, control = drawn(Lookup(prefix=2), length, seed)
    rows, i = contexts.rows, contexts.query
    rival, match = contexts.links.T
    for made, right, wrong in ((contexts, match, rival), (control, rival, match)):
        assert torch.equal(made.tokens[rows, i], made.tokens[rows, right])
        assert torch.equal(made.tokens[rows, i], made.tokens[rows, wrong])
        assert torch.equal(made.tokens[rows, i - 1], made.tokens[rows, right - 1])
        assert (made.tokens[rows, i - 1] != made.tokens[rows, wrong - 1]).all()
    assert torch.equal(contexts.tokens[rows, match + 1], contexts.wanted)
    assert torch.equal(control.tokens[rows, match + 1], control.wanted)
    assert all(len(set(row)) == length - 3 for row in contexts.tokens.tolist())


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 3), st.integers(0, 99))
def test_a_closed_chain_shows_every_token_twice_and_its_control_leads_elsewhere(
    hops: int, seed: int
) -> None:
    contexts, control = drawn(Lookup(hops=hops, closed=True), 13, seed)
    assert len(contexts) > 0
    for k in range(len(contexts)):
        i, match = int(contexts.query[k]), int(contexts.match[k])
        starts = range(match % 2, i - 1, 2)
        for made in (contexts, control):
            row = made.tokens[k].tolist()
            keys, values = [row[p] for p in starts], [row[p + 1] for p in starts]
            assert sorted(keys) == sorted(values)
            assert len(set(keys)) == len(keys) > hops
            step = dict(zip(keys, values, strict=True))
            token = row[i]
            for _ in range(hops):
                token = step[token]
            assert (token == made.wanted[k]) == (made is contexts)


def test_the_token_before_the_copy_is_wanted_at_offset_minus_one() -> None:
    contexts, _ = drawn(Lookup(-1), 9, 0)
    rows = contexts.rows
    assert torch.equal(contexts.tokens[rows, contexts.match - 1], contexts.wanted)
    assert int(contexts.match.min()) >= 1
    assert (contexts.match < contexts.query).all()


def test_asked_tokens_are_those_that_the_lookup_speaks_of() -> None:
    asked = torch.tensor([3, 5, 7, 9])
    g = torch.Generator().manual_seed(0)
    for lookup, count in ((Lookup(), 2), (Lookup(hops=3), 4), (Lookup(prefix=2), 3)):
        contexts = matching_contexts(30, 16, torch.arange(20), lookup, asked=asked, generator=g)
        told = torch.stack(lookup.told(contexts.links), 1)
        assert told.shape[1] == count
        assert torch.isin(contexts.tokens.gather(1, told), asked).all()


def test_room_is_counted_before_anything_is_drawn() -> None:
    assert (Lookup().least, Lookup(-1).least, Lookup(hops=2).least) == (3, 3, 5)
    closed = Lookup(hops=2, closed=True)
    assert closed.least == 7
    assert len(drawn(closed, 7, 0)[0]) > 0
    with pytest.raises(InvalidArgumentError, match="got 6 positions; wanted at least 8"):
        drawn(Lookup(prefix=2), 6, 0)


@pytest.mark.parametrize(
    "wrong", [{"hops": 0}, {"prefix": 3}, {"hops": 2, "prefix": 2}, {"closed": True}]
)
def test_lookups_that_cannot_be_asked_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError, match="no such lookup about a match"):
        Lookup(**wrong)
