"""Exact laws and ceilings against brute force; samples against the enumerated law."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from itertools import permutations
from math import isclose, log
from typing import Any

import pytest
import torch
from scipy.stats import chi2
from task_cases import SETTINGS, TINY, exact, label, labelled
from task_oracles import Law

from imir_detect.tasks import IGNORE, Batch

INDEX = pytest.mark.parametrize("index", range(len(TINY)), ids=lambda i: label(TINY[i]))
SAMPLES = 100_000
BUCKETS = 500
TAIL = 1e-4  # chance that one chi-square test fails although the law is right; seeds are fixed


def as_batch(law: Law) -> Batch:
    """Every outcome once."""
    tokens = torch.tensor([tokens for tokens, _ in law])
    targets = torch.tensor([targets for _, targets in law])
    return Batch(tokens, targets, torch.full_like(tokens, -1))


def predictive(law: Law, length: int) -> list[dict[tuple[int, ...], Counter[int]]]:
    """For every place: prefix -> probability of prefix and target together."""
    tables: list[dict[tuple[int, ...], Counter[int]]] = [
        defaultdict(Counter) for _ in range(length)
    ]
    for (tokens, targets), chance in law.items():
        for place, target in enumerate(targets):
            if target != IGNORE:
                tables[place][tokens[: place + 1]][target] += chance  # type: ignore[assignment]
    return tables


@INDEX
def test_the_law_equals_the_enumerated_conditional(index: int) -> None:
    task, law = labelled(TINY[index]), exact(index)
    batch = as_batch(law)
    given = task.law(batch)
    assert given is not None
    tables = predictive(law, task.length)
    rows, places = (batch.targets != IGNORE).nonzero(as_tuple=True)
    wanted = torch.zeros_like(given)
    for i, (row, place) in enumerate(zip(rows.tolist(), places.tolist(), strict=True)):
        table = tables[place][tuple(batch.tokens[row, : place + 1].tolist())]
        total = sum(table.values())
        for token, chance in table.items():
            wanted[i, token] = chance / total
    torch.testing.assert_close(given, wanted, rtol=0, atol=1e-12)


@INDEX
def test_samples_follow_the_enumerated_law(index: int) -> None:
    task, law = labelled(TINY[index]), exact(index)
    batch = task.sample(SAMPLES, generator=torch.Generator().manual_seed(index))
    both = torch.cat([batch.tokens, batch.targets], dim=1)
    rows, counts = both.unique(dim=0, return_counts=True)
    expected: Counter[int] = Counter()
    seen: Counter[int] = Counter()
    size = task.length

    def bucket(tokens: tuple[int, ...], targets: tuple[int, ...]) -> int:
        return zlib.crc32(repr((tokens, targets)).encode()) % BUCKETS

    for (tokens, targets), chance in law.items():
        expected[bucket(tokens, targets)] += chance * SAMPLES  # type: ignore[assignment]
    for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
        outcome = tuple(row[:size]), tuple(row[size:])
        assert outcome in law, f"a sequence that the task cannot make: {outcome}"
        seen[bucket(*outcome)] += count
    assert_fits([seen[k] for k in expected], list(expected.values()))


@pytest.mark.parametrize("case", [c for c in SETTINGS if c[0] != "automaton"], ids=label)
def test_targets_follow_the_law_at_full_size(case: tuple[str, dict[str, Any]]) -> None:
    """How often the target is the law's first, second, ... choice, by 10^5 questions."""
    task = labelled(case)
    generator = torch.Generator().manual_seed(5)
    expected, seen, asked = (torch.zeros(task.vocab_size, dtype=torch.float64) for _ in range(3))
    while float(asked[0]) < SAMPLES:
        batch = task.sample(4000, generator=generator)
        law = task.law(batch)
        assert law is not None
        targets = batch.targets[batch.targets != IGNORE]
        assert float(law.gather(1, targets[:, None]).min()) > 0
        if bool((law.max(dim=1).values == 1).all()):
            return  # certain answers, and every target is the certain one
        chance, order = law.sort(dim=1, descending=True, stable=True)
        expected += chance.sum(dim=0)
        seen += torch.nn.functional.one_hot(
            (order == targets[:, None]).long().argmax(dim=1), task.vocab_size
        ).sum(dim=0)
        asked[0] += len(targets)
    assert_fits(seen.tolist(), expected.tolist())


def test_automaton_law_at_full_size_by_its_own_automata() -> None:
    """Where the law is a sum over 19,683 automata, a smaller sample: 6,300 questions."""
    task = labelled(("automaton", {}))
    batch = task.sample(150, generator=torch.Generator().manual_seed(5))
    law = task.law(batch)
    assert law is not None
    targets = batch.targets[batch.targets != IGNORE]
    chance, order = law.sort(dim=1, descending=True, stable=True)
    rank = (order == targets[:, None]).long().argmax(dim=1)
    seen = torch.nn.functional.one_hot(rank, task.vocab_size).sum(dim=0)
    assert_fits(seen.tolist(), chance.sum(dim=0).tolist())


def test_automata_too_many_to_sum_over_have_no_law_and_follow_their_tables() -> None:
    from imir_detect.tasks import AutomatonStrings

    task = AutomatonStrings(states=6, symbols=5, arcs=3)
    generator = torch.Generator().manual_seed(0)
    batch, machine, states = task.draw_with_automata(10_000, generator=generator)
    assert task.law(batch[:2]) is None
    rows, places = (batch.targets != IGNORE).nonzero(as_tuple=True)
    arcs = machine.symbol[rows, states[rows, places]]
    hit = arcs == batch.targets[rows, places, None]
    assert bool((hit.sum(dim=1) == 1).all())
    assert_fits(hit.sum(dim=0).tolist(), [len(rows) / 3] * 3)
    inside = states[rows, places] > 0
    visits = states[rows, places][inside & (places > 20)].bincount(minlength=6)
    assert int(visits[1:].min()) > 0


def assert_fits(seen: list[float], expected: list[float]) -> None:
    """Pearson's chi-square, cells below 5 merged; certain cells must agree exactly."""
    small = [i for i, e in enumerate(expected) if e < 5]
    cells = [(s, e) for s, e in zip(seen, expected, strict=True) if e >= 5]
    rest = sum(expected[i] for i in small)
    if rest > 1e-6:
        cells.append((sum(seen[i] for i in small), rest))
    assert isclose(sum(s for s, _ in cells), sum(seen), abs_tol=1e-6)
    if len(cells) == 1:
        assert isclose(*cells[0], rel_tol=1e-9)
        return
    statistic = sum((s - e) ** 2 / e for s, e in cells)
    assert chi2.sf(statistic, len(cells) - 1) > TAIL, (statistic, len(cells))


# -- ceilings -------------------------------------------------------------------------------------


def best_of(tables: list[dict[Any, Counter[int]]]) -> tuple[float, float]:
    """Accuracy and loss of the best predictor that sees the tables' keys, mean over questions."""
    right = loss = asked = 0.0
    for table in tables:
        for targets in table.values():
            total = sum(targets.values())
            asked += total
            right += max(targets.values())
            loss -= sum(p * log(p / total) for p in targets.values() if p > 0)
    return right / asked, loss / asked


@INDEX
def test_closed_ceilings_equal_brute_force(index: int) -> None:
    task, law = labelled(TINY[index]), exact(index)
    given = task.ceiling()
    both = best_of(predictive(law, task.length))
    if given.both_accuracy is not None:
        assert (given.both_accuracy, given.both_loss) == pytest.approx(both, abs=1e-12)
    if task.relation is None:
        assert given.weights_accuracy is None
        if given.context_accuracy is not None:
            assert (given.context_accuracy, given.context_loss) == pytest.approx(both, abs=1e-12)
        return
    if given.weights_accuracy is not None:
        query_only = {(t[-1:], (y[-1],)): 0.0 for t, y in law}
        for (tokens, targets), chance in law.items():
            query_only[tokens[-1:], (targets[-1],)] += chance
        best = best_of(predictive(query_only, 1))
        assert (given.weights_accuracy, given.weights_loss) == pytest.approx(best, abs=1e-12)
    if given.context_accuracy is not None:
        best = best_of(predictive(without_relation(task, law), task.length))
        assert (given.context_accuracy, given.context_loss) == pytest.approx(best, abs=1e-12)


def matchings(tokens: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every way to pair the tokens, pairs one after the other."""
    if not tokens:
        return [()]
    first, *rest = tokens
    return [
        (first, partner, *others)
        for partner in rest
        for others in matchings(tuple(t for t in rest if t != partner))
    ]


def without_relation(task: Any, law: Law) -> Law:
    """The law for who does not know R: the mean over all relations of its kind.

    One relabelling per relation is enough, since those that preserve R change nothing.
    """
    half, common = task.n_common // 2, task.n_common
    if task.directed:
        images = [(*range(half), *values) for values in permutations(range(half, common))]
    else:
        images = matchings(tuple(range(common)))
    mean: Law = defaultdict(float)
    for image in images:
        moved = {i: image[i] if i < common else i for i in range(task.vocab_size)}
        for (tokens, targets), chance in law.items():
            outcome = tuple(moved[t] for t in tokens), (*targets[:-1], moved[targets[-1]])
            mean[outcome] += chance / len(images)
    return dict(mean)
