"""Symmetries, circuits and the small draws: hand-sized cases and guards."""

from __future__ import annotations

import pytest
import torch

from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks.base import Batch
from imir_detect.tasks.blocks import place_unlike_blocks, zipf_tokens
from imir_detect.tasks.family import last_place, last_seen
from imir_detect.tasks.keyed import keyed_law, read_value
from imir_detect.tasks.labels import (
    LOGITS,
    ExpectedCircuit,
    ExpectedUnit,
    Symmetry,
    direct_copy,
    induction,
    permutations_of,
)


def test_generators_reach_every_permutation_inside_the_classes() -> None:
    moves = permutations_of([[0, 1, 2], [3, 4]], 5)
    reached = {(0, 1, 2, 3, 4)}
    while True:
        more = {tuple(move[i] for i in image) for image in reached for move in moves} | reached
        if more == reached:
            break
        reached = more
    assert len(reached) == 6 * 2
    assert all(set(image[:3]) == {0, 1, 2} for image in reached)


def test_a_symmetry_checks_its_generators_and_its_reason() -> None:
    with pytest.raises(InvalidArgumentError, match=r"not a permutation.*every number below 3"):
        Symmetry("bad", "token", ((0, 0, 2),))
    with pytest.raises(InvalidArgumentError, match="exactly when it does not hold"):
        Symmetry("bad", "token", (), holds=False)


def test_circuits_check_units_and_edges() -> None:
    with pytest.raises(InvalidArgumentError, match=r"no such unit.*an offset for a shift alone"):
        ExpectedUnit("back", "shift", 0)
    with pytest.raises(InvalidArgumentError, match="no such unit"):
        ExpectedUnit("same", "match", 0, 1)
    late, early = ExpectedUnit("late", "match", 1), ExpectedUnit("early", "shift", 0, 1)
    with pytest.raises(InvalidArgumentError, match=r"\('late', 'early', 'K'\).*rising stage"):
        ExpectedCircuit("induction", (early, late), (("late", "early", "K"),))
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        ExpectedCircuit("induction", (early,), (("nowhere", LOGITS, "out"),))


def test_induction_by_hand() -> None:
    plain = induction()
    assert [(u.kind, u.stage, u.offset) for u in plain.units] == [
        ("shift", 0, 1),
        ("match", 1, None),
        ("copy", 1, None),
    ]
    assert plain.edges == (
        ("1 back", "match 1", "K"),
        ("match 1", "copy", "V"),
        ("copy", LOGITS, "out"),
    )
    assert plain.layers == 2
    trigram = induction(2)
    assert trigram.kind == "induction_long_prefix"
    assert ("1 back", "match 2", "Q") in trigram.edges
    assert ("2 back", "match 2", "K") in trigram.edges
    across = induction(2, gap=1)  # one fixed token between the key and the answer
    assert {("2 back", "match 1", "K"), ("1 back", "match 1", "Q")} <= set(across.edges)
    assert {("3 back", "match 2", "K"), ("2 back", "match 2", "Q")} <= set(across.edges)
    assert induction(1, gap=1).kind == "skip"
    assert direct_copy("own", 0, "none").layers == direct_copy("3 back", 3, "offset").layers == 1


def test_places_by_hand() -> None:
    tokens = torch.tensor([[5, 1, 5, 2]])
    assert last_place(tokens, torch.tensor([5])).tolist() == [2]
    assert last_place(tokens[:, 1::2], torch.tensor([1]), 2, 1).tolist() == [1]
    assert last_place(tokens, torch.tensor([9])).tolist() == [-1]
    targets = torch.tensor([[-100, 5, 5, 1]])
    assert last_seen(tokens, targets, 6).tolist() == [[-1, 0, 2, 1]]


def test_keys_are_read_whole_and_an_unseen_one_leaves_what_is_unseen() -> None:
    tokens = torch.tensor([[0, 1, 2, 0, 3, 4, 0, 3], [0, 1, 2, 0, 3, 4, 1, 3]])
    value, found = read_value(tokens, 2)
    assert found.tolist() == [True, False]
    assert int(value[0]) == 4
    batch = Batch(tokens, tokens, tokens)
    law = keyed_law(batch, 2, torch.tensor([True] * 6 + [False]))
    assert law[0].tolist() == [0, 0, 0, 0, 1, 0, 0]
    assert law[1].tolist() == [0, 0, 0, 0, 0, 1, 0]


def test_unlike_blocks_all_come_first_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    block = place_unlike_blocks(9000, 4, 1, never_first=True, generator=generator)
    assert bool((block.sort(dim=1).values == torch.arange(4)).all())
    counts = block[:, 0].bincount(minlength=4)
    assert int(counts[0]) == 0
    assert int(counts[1:].min()) > 2800


def test_zipf_tokens_stay_inside_the_vocabulary() -> None:
    tokens = zipf_tokens((10_000,), 3, 9.0, generator=torch.Generator().manual_seed(0))
    assert int(tokens.max()) <= 2
    assert float((tokens == 0).double().mean()) > 0.99
