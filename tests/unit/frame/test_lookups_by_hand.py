"""Lookups: contexts hold what the question ties together, and lose nothing else without it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.lookups import (
    INDUCTION,
    Lookup,
    _swapped,
    matching_contexts,
    without_match,
)

OPEN = [
    Lookup(),
    Lookup(2),
    Lookup(3),
    Lookup(-1),
    Lookup(hops=2),
    Lookup(hops=3),
    Lookup(prefix=2),
]
CLOSED = [Lookup(hops=2, closed=True), Lookup(hops=3, closed=True)]


def drawn(lookup: Lookup, length: int, seed: int, n: int = 30, **how: object):
    generator = torch.Generator().manual_seed(seed)
    vocabulary = torch.arange(100, 100 + length + 4)
    contexts = matching_contexts(n, length, vocabulary, lookup, generator=generator, **how)  # type: ignore[arg-type]
    return contexts, without_match(contexts, lookup, generator=generator)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(OPEN), st.integers(0, 6), st.integers(0, 999))
def test_the_links_lead_from_the_query_to_the_wanted_token(
    lookup: Lookup, extra: int, seed: int
) -> None:
    length = lookup.least + extra
    contexts, _ = drawn(lookup, length, seed)
    assert contexts.links.shape == (len(contexts), lookup.links)
    for row, i, p, wanted, links in zip(
        contexts.tokens.tolist(),
        contexts.query.tolist(),
        contexts.match.tolist(),
        contexts.wanted.tolist(),
        contexts.links.tolist(),
        strict=True,
    ):
        assert links[-1] == p
        assert wanted == row[p + lookup.offset]
        assert all(0 <= q + lookup.offset < i for q in links)
        if lookup.prefix == 2:
            rival, right = links
            assert row[i] == row[right] == row[rival]
            assert row[i - 1] == row[right - 1] != row[rival - 1]
            repeats = 3  # the query's token twice more, the one before it once
        else:
            token = row[i]
            for q in links:
                assert row[q] == token
                token = row[q + lookup.offset]
            assert token == wanted
            repeats = lookup.hops
        assert len(set(row)) == length - repeats


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(OPEN), st.integers(0, 6), st.integers(0, 999))
def test_without_the_match_nothing_else_is_lost(lookup: Lookup, extra: int, seed: int) -> None:
    contexts, plain = drawn(lookup, lookup.least + extra, seed)
    changed = contexts.tokens != plain.tokens
    assert torch.equal(plain.wanted, contexts.wanted)
    assert torch.equal(plain.query, contexts.query)
    assert set(plain.match.tolist()) <= {-1}
    for n, places in enumerate(changed):
        right, rival = int(contexts.match[n]), int(contexts.links[n, 0])
        where = places.nonzero()[:, 0].tolist()
        if lookup.prefix == 1:
            assert where == [right]
            assert int(plain.tokens[n, right]) not in contexts.tokens[n].tolist()
        else:
            assert sorted(where) == sorted([right - 1, rival - 1])
            assert sorted(plain.tokens[n].tolist()) == sorted(contexts.tokens[n].tolist())


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(CLOSED), st.integers(0, 8), st.integers(0, 999))
def test_a_closed_chain_leads_through_all_its_pairs_and_back(
    lookup: Lookup, extra: int, seed: int
) -> None:
    contexts, plain = drawn(lookup, lookup.least + 2 + extra, seed)
    for n, row in enumerate(contexts.tokens.tolist()):
        i, match = int(contexts.query[n]), int(contexts.match[n])
        pairs = {row[p]: row[p + 1] for p in range(match % 2, i - 1, 2)}
        assert len(pairs) > lookup.hops + 1
        assert set(pairs) == set(pairs.values())
        token, seen = row[i], []
        while token not in seen:
            seen.append(token)
            token = pairs[token]
        assert token == row[i]  # one chain, of all pairs
        assert len(seen) == len(pairs)
        places = contexts.links[n].tolist()
        assert [row[p] for p in places] == seen[: lookup.hops]
        assert places[-1] == match
        assert int(contexts.wanted[n]) == pairs[row[match]]
        # Without the match the chain leads elsewhere; every token still stands twice, and the
        # wanted one where it stood.
        other = plain.tokens[n].tolist()
        rest = {other[p]: other[p + 1] for p in range(match % 2, i - 1, 2)}
        token = other[i]
        for _ in range(lookup.hops):
            token = rest[token]
        wanted = int(contexts.wanted[n])
        assert token != wanted
        assert sorted(other) == sorted(row)
        assert [p for p in range(i) if other[p] == wanted] == [
            p for p in range(i) if row[p] == wanted
        ]


@pytest.mark.parametrize("lookup", [*OPEN, *CLOSED], ids=str)
def test_the_least_context_is_the_least(lookup: Lookup) -> None:
    if not lookup.closed:
        assert len(drawn(lookup, lookup.least, 0, n=200)[0]) > 0
    with pytest.raises(InvalidArgumentError, match=f"wanted at least {lookup.least}"):
        drawn(lookup, lookup.least - 1, 0)


def test_the_least_contexts_by_hand() -> None:
    # [a b a]; [a x b a]; [b a a]: the wanted token before the copy; [b c a b a] and
    # [x a b y a c x a].
    least = [lookup.least for lookup in (Lookup(), Lookup(2), Lookup(-1), Lookup(hops=2))]
    assert least == [3, 4, 3, 5]
    assert Lookup(prefix=2).least == 8


def test_cells_by_hand() -> None:
    assert Lookup().cells(4).nonzero().tolist() == [[2, 0], [3, 0], [3, 1]]
    assert Lookup(2).cells(4).nonzero().tolist() == [[3, 0]]
    assert Lookup(-1).cells(4).nonzero().tolist() == [[2, 1], [3, 1], [3, 2]]
    # Both tokens of the prefix stand before what they lead to, and before the query's own.
    assert Lookup(prefix=2).cells(5).nonzero().tolist() == [[4, 1]]


def test_copies_clash_where_what_belongs_to_them_overlaps() -> None:
    places = torch.arange(5)
    assert Lookup().clash(torch.tensor(2), places).tolist() == [False, True, True, True, False]
    wide = Lookup(prefix=2).clash(torch.tensor(2), places)
    assert wide.tolist() == [True, True, True, True, True]


def test_asked_tokens_are_those_that_the_lookup_speaks_of() -> None:
    asked = torch.arange(100, 106)
    for lookup, length in ((INDUCTION, 8), (Lookup(hops=2), 9), (Lookup(prefix=2), 10)):
        contexts, _ = drawn(lookup, length, 0, asked=asked)
        told = {int(contexts.wanted[n]) for n in range(len(contexts))}
        told |= set(contexts.tokens[contexts.rows, contexts.query].tolist())
        assert told <= set(asked.tolist())
        others = set(contexts.tokens.flatten().tolist()) - set(asked.tolist())
        assert others  # the rest comes from the whole vocabulary
    # Fewer tokens than the lookup speaks of are not asked for.
    few, _ = drawn(INDUCTION, 8, 0, asked=asked[:1])
    assert set(few.wanted.tolist()) - {100}


def test_where_other_copies_find_no_room_the_context_is_left_out() -> None:
    cells = torch.zeros(9, 9, dtype=torch.bool)
    cells[8, 2] = cells[7, 2] = cells[7, 5] = True
    contexts, _ = drawn(Lookup(hops=2), 9, 0, n=200, cells=cells)
    found = {
        (q, tuple(links))
        for q, links in zip(contexts.query.tolist(), contexts.links.tolist(), strict=True)
    }
    # A query at 8 has no second place; one at 7 has two, in either order.
    assert found == {(7, (5, 2)), (7, (2, 5))}
    assert 0 < len(contexts) < 200


def test_where_no_context_finds_room_there_is_none() -> None:
    cells = torch.zeros(9, 9, dtype=torch.bool)
    cells[8, 2] = True
    contexts, plain = drawn(Lookup(hops=3), 9, 0, cells=cells)
    assert contexts.tokens.shape == plain.tokens.shape == (0, 9)
    assert contexts.links.shape == (0, 3)


def test_selected_contexts_keep_their_links() -> None:
    contexts, _ = drawn(Lookup(hops=2), 9, 0)
    keep = torch.tensor([2, 0])
    assert torch.equal(contexts.select(keep).links, contexts.links[keep])
    assert torch.equal(contexts.select(keep).match, contexts.links[keep, -1])


def test_swapping_leaves_the_rows_that_were_given_alone() -> None:
    rows = torch.tensor([[1, 2, 3], [4, 5, 6]])
    found = _swapped(rows, torch.tensor([0, 1]), torch.tensor([2, 2]))
    assert found.tolist() == [[3, 2, 1], [4, 6, 5]]
    assert rows.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "fields",
    [
        {"hops": 0},
        {"prefix": 3},
        {"prefix": 0},
        {"hops": 2, "prefix": 2},
        {"closed": True},
        {"hops": 2, "closed": True, "offset": -1},
    ],
)
def test_lookups_about_no_match_are_refused(fields: dict) -> None:
    with pytest.raises(InvalidArgumentError, match=r"no such lookup.*several hops"):
        Lookup(**fields)


def test_lookups_say_what_they_are() -> None:
    assert str(Lookup(hops=3, closed=True)) == "3 hops on a closed chain"
    assert (INDUCTION.plain, INDUCTION.links) == (True, 1)
    assert (Lookup(prefix=2).plain, Lookup(prefix=2).links) == (False, 2)
    assert (Lookup(hops=3).plain, Lookup(hops=3).links) == (False, 3)
    links = torch.tensor([[4, 2]])
    assert [t.tolist() for t in Lookup(hops=2).told(links)] == [[4], [5], [3]]
    assert [t.tolist() for t in Lookup(prefix=2).told(links)] == [[1], [2], [3]]
