"""Declared symmetries are tested by applying the group; broken ones must fail that test."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chi2
from task_cases import SETTINGS, TINY, exact, label, labelled
from task_oracles import Law

from imir_detect.tasks import IGNORE
from imir_detect.tasks.blocks import Offsets
from imir_detect.tasks.labels import Symmetry

INDEX = pytest.mark.parametrize("index", range(len(TINY)), ids=lambda i: label(TINY[i]))


def token_symmetries(index: int) -> list[Symmetry]:
    return [s for s in labelled(TINY[index]).symmetries if s.space == "token"]


def largest_change(law: Law, image: tuple[int, ...]) -> float:
    """How much a relabelling of tokens and targets changes the probability of an outcome."""

    def move(row: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(t if t == IGNORE else image[t] for t in row)

    moved = {(move(tokens), move(targets)): chance for (tokens, targets), chance in law.items()}
    return max(abs(law.get(k, 0.0) - moved.get(k, 0.0)) for k in law.keys() | moved.keys())


@INDEX
def test_token_symmetries_leave_the_exact_law_alone_or_are_declared_broken(index: int) -> None:
    law = exact(index)
    for symmetry in token_symmetries(index):
        changes = [largest_change(law, image) for image in symmetry.generators]
        if symmetry.holds:
            assert max(changes, default=0.0) < 1e-12, symmetry.name
        else:
            assert max(changes) > 1e-4, f"{symmetry.name} holds although {symmetry.why_not}"


@INDEX
def test_assumptions_agree_with_the_symmetries(index: int) -> None:
    task, law = labelled(TINY[index]), exact(index)
    holds = {s.name: s.holds for s in task.symmetries}
    if task.assumptions.r_invariant is not None:
        assert task.assumptions.r_invariant == holds["pairs of R"]
    if task.assumptions.lexinvariant:
        assert holds["rare tokens"]
    assert task.assumptions.independent_offsets == holds.get("block offsets", False)
    assert law


def test_what_is_not_declared_is_not_there_either() -> None:
    """A relabelling that breaks pairs of R changes recall's law: the test can tell."""
    index = next(i for i, (name, _) in enumerate(TINY) if name == "recall")
    across = (2, 1, 0, *range(3, labelled(TINY[index]).vocab_size))
    assert largest_change(exact(index), across) > 1e-4


@pytest.mark.parametrize("case", [c for c in SETTINGS if c[0] != "automaton"], ids=label)
def test_the_law_at_full_size_moves_with_the_tokens(case: tuple[str, dict[str, object]]) -> None:
    """law(g x) = g law(x): what the token symmetries imply where nothing can be enumerated."""
    task = labelled(case)
    batch = task.sample(100, generator=torch.Generator().manual_seed(0))
    law = task.law(batch)
    assert law is not None
    for symmetry in task.symmetries:
        if symmetry.space == "position" or not symmetry.holds:
            continue
        for image in map(torch.tensor, symmetry.generators):
            asked = batch.targets != IGNORE
            targets = torch.where(asked, image[batch.targets.clamp(min=0)], IGNORE)
            moved = type(batch)(image[batch.tokens], targets, batch.answer_position)
            given = task.law(moved)
            assert given is not None
            torch.testing.assert_close(given[:, image], law, rtol=0, atol=1e-12)


PLACED = ["recall", "ngram", "k_hop", "ioi", "conditional", "inversion", "automaton"]


def tail_of_moved_starts(name: str, offsets: Offsets) -> tuple[float, Symmetry]:
    """Chi-square tail of "a block's start may be moved by the group, whatever another's is"."""
    task = labelled(
        (name, {"offsets": offsets, "n_blocks": 2 + 2 * (name in ("k_hop", "conditional"))})
    )
    symmetry = next(s for s in task.symmetries if s.space == "position")
    lengths = task.block_lengths  # type: ignore[attr-defined]
    batch = task.sample(50_000, generator=torch.Generator().manual_seed(1))
    place = batch.positions if batch.positions is not None else torch.arange(task.length)[None]
    first, second = place[:, 0], place[:, lengths[0]]
    size = len(symmetry.generators[0]) if symmetry.generators else 1
    table = torch.zeros(size, size + max(lengths), dtype=torch.float64)
    table.index_put_((first, second), torch.ones((), dtype=torch.float64), accumulate=True)
    table = table[:, table.sum(dim=0) >= 5 * size]
    # The group moves the first block's start to every place: counts are alike down a column.
    mean = table.mean(dim=0, keepdim=True)
    statistic = float(((table - mean) ** 2 / mean).sum())
    return float(chi2.sf(statistic, (size - 1) * table.shape[1])), symmetry


@pytest.mark.parametrize("name", PLACED)
def test_random_offsets_are_independent_and_uniform(name: str) -> None:
    tail, symmetry = tail_of_moved_starts(name, "random")
    assert symmetry.holds
    assert tail > 1e-4


@pytest.mark.parametrize("name", PLACED)
def test_blocks_that_avoid_each_other_are_declared_broken_and_are(name: str) -> None:
    tail, symmetry = tail_of_moved_starts(name, "disjoint")
    assert not symmetry.holds
    assert "cells" in symmetry.why_not
    assert tail < 1e-12


@pytest.mark.parametrize("name", PLACED)
def test_consecutive_blocks_do_not_move_at_all(name: str) -> None:
    task = labelled((name, {}))
    (symmetry,) = (s for s in task.symmetries if s.space == "position")
    assert not symmetry.holds
    assert task.sample(2, generator=torch.Generator()).positions is None
