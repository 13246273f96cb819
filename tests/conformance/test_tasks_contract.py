"""Every registered task keeps the contract, at its defaults and on its other branches."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
import torch
from task_cases import LABELLED, SETTINGS, TINY, label, labelled

from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks import AXES, IGNORE, REGISTRY, Batch, LabelledTask, Task, accuracy, make_task
from imir_detect.tasks.family import check_generator
from imir_detect.tasks.labels import LOGITS

CASES = pytest.mark.parametrize("case", SETTINGS, ids=label)
Case = tuple[str, dict[str, Any]]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batches(task: LabelledTask, n: int = 200) -> list[Batch]:
    """One of everything that the task draws."""
    probes = (task.probe(axis, n, generator=seeded(3)) for axis in AXES)
    drawn = [task.sample(n, generator=seeded(1)), *task.pairs(n, generator=seeded(2))]
    return [*drawn, *(probe for probe in probes if probe is not None)]


def fields(batch: Batch) -> list[torch.Tensor]:
    kept = (batch.tokens, batch.targets, batch.answer_position, batch.positions)
    return [field for field in kept if field is not None]


UNLABELLED = {"causal_graph"}  # its target is a row of numbers, which these labels do not fit


def test_every_registered_task_keeps_the_bare_contract() -> None:
    for name in REGISTRY:
        task = make_task(name)
        assert isinstance(task, Task)
        assert task.name == name
        one, two = (task.sample(50, generator=seeded()) for _ in range(2))
        assert one.tokens.shape == (50, task.length)
        assert all(torch.equal(a, b) for a, b in zip(fields(one), fields(two), strict=True))
        assert 0 <= int(one.tokens.min()) <= int(one.tokens.max()) < task.vocab_size
        assert bool((one.targets != IGNORE).any(dim=1).all())


def test_every_task_is_labelled_and_has_a_tiny_case_but_for_known_ones() -> None:
    assert set(REGISTRY) - set(LABELLED) <= UNLABELLED
    assert set(LABELLED) == {name for name, _ in TINY}


@CASES
def test_same_seed_same_data_and_the_global_state_is_left_alone(case: Case) -> None:
    task = labelled(case)
    before = torch.get_rng_state()
    for one, two in zip(batches(task), batches(task), strict=True):
        for a, b in zip(fields(one), fields(two), strict=True):
            assert torch.equal(a, b)
    assert torch.equal(before, torch.get_rng_state())
    other = task.sample(200, generator=seeded(9))
    assert not torch.equal(other.tokens, task.sample(200, generator=seeded(1)).tokens)


@CASES
def test_shapes_dtypes_and_ranges(case: Case) -> None:
    task = labelled(case)
    for batch in batches(task):
        assert batch.tokens.shape == (200, task.length)
        assert all(field.dtype == torch.long for field in fields(batch))
        assert 0 <= int(batch.tokens.min()) <= int(batch.tokens.max()) < task.vocab_size
        asked = batch.targets[batch.targets != IGNORE]
        assert 0 <= int(asked.min()) <= int(asked.max()) < task.vocab_size
        assert bool((batch.targets != IGNORE).any(dim=1).all()), "a sequence without a question"
        if batch.positions is None:
            assert task.n_positions == task.length
        else:
            assert int(batch.positions.min()) >= 0
            assert int(batch.positions.max()) < task.n_positions
    for n in (0, 1):
        assert task.sample(n, generator=seeded()).tokens.shape == (n, task.length)


@CASES
def test_the_answer_stands_where_it_is_said_to_stand(case: Case) -> None:
    name, knobs = case
    task = labelled((name, {**knobs, "label_noise": 0.0} if "label_noise" in knobs else knobs))
    for batch in batches(task):
        place = batch.answer_position
        shown = place >= 0
        assert bool((batch.targets[shown] != IGNORE).all())
        assert bool((place <= torch.arange(task.length))[shown].all()), "an answer in the future"
        held = batch.tokens.gather(1, place.clamp(min=0))
        assert torch.equal(held[shown], batch.targets[shown])
        if name == "mixture":  # another segment may show the answer by chance
            continue
        absent = (batch.targets != IGNORE) & ~shown
        early = batch.tokens[:, None, :] == batch.targets[..., None]
        early &= torch.ones(task.length, task.length, dtype=torch.bool).tril()
        assert not bool(early.any(dim=2)[absent].any()), "an answer is there and not pointed at"


@CASES
def test_corrupt_sequences_ask_the_same_place_for_another_answer(case: Case) -> None:
    task = labelled(case)
    clean, corrupt = task.pairs(200, generator=seeded())
    asked = clean.targets != IGNORE
    assert torch.equal(asked, corrupt.targets != IGNORE)
    assert bool((asked.sum(dim=1) == 1).all())
    assert bool((clean.targets[asked] != corrupt.targets[asked]).all())
    assert not bool((clean.tokens == corrupt.tokens).all(dim=1).any())
    if clean.positions is not None:
        assert corrupt.positions is not None
        assert torch.equal(clean.positions, corrupt.positions)
    for batch in (clean, corrupt):
        law = task.law(batch[:16])
        if law is not None:  # each is a sequence of the task: its answer is a possible one
            assert float(law.gather(1, batch[:16].targets[asked[:16]][:, None]).min()) > 0


@CASES
def test_the_law_is_a_law_and_predicts_as_well_as_the_ceiling_says(case: Case) -> None:
    task = labelled(case)
    batch = task.sample(16 if task.name == "automaton" else 2000, generator=seeded())
    law = task.law(batch)
    if law is None:
        assert task.ceiling().both_accuracy is None
        return
    asked = batch.targets != IGNORE
    assert law.shape == (int(asked.sum()), task.vocab_size)
    assert law.dtype == torch.float64
    assert float(law.min()) >= 0
    torch.testing.assert_close(law.sum(dim=1), torch.ones(len(law), dtype=torch.float64))
    best = task.ceiling().both_accuracy
    if best is not None:
        logits = torch.zeros(*batch.tokens.shape, task.vocab_size, dtype=torch.float64)
        logits[asked] = law
        slack = 4 * (best * (1 - best) / len(law)) ** 0.5
        assert abs(accuracy(logits, batch) - best) <= slack + 1e-12


@CASES
def test_labels_are_complete_and_the_task_travels_as_json(case: Case) -> None:
    task = labelled(case)
    assert task.expected_circuits, "no circuit is said to solve the task"
    for circuit in task.expected_circuits:
        assert any(target == LOGITS for _, target, _ in circuit.edges)
        assert str(circuit).startswith(circuit.kind)
    names = [task.token_name(token) for token in range(task.vocab_size)]
    assert len(set(names)) == task.vocab_size
    for symmetry in task.symmetries:
        size = task.vocab_size if symmetry.space == "token" else None
        assert all(len(move) == (size or len(move)) for move in symmetry.generators)
    knobs = json.loads(json.dumps(asdict(task)))  # type: ignore[call-overload]
    again = make_task(
        case[0], **{k: tuple(v) if isinstance(v, list) else v for k, v in knobs.items()}
    )
    assert again == task
    assert hash(again) == hash(task)


def test_controls_have_no_axes() -> None:
    for name in ("copy_last", "offset_copy", "unigram", "majority", "sorting", "periodic"):
        task = make_task(name)
        assert isinstance(task, LabelledTask)
        assert task.control
        assert [task.probe(axis, 4, generator=seeded()) for axis in AXES] == [None, None]


def test_a_batch_moves_as_a_whole() -> None:
    task = make_task("recall", offsets="random")
    moved = task.sample(3, generator=seeded()).to("meta")
    assert all(field.device.type == "meta" for field in fields(moved))
    assert moved.tokens.shape == (3, task.length)
    assert len(moved[:2]) == 2


def test_a_generator_on_another_device_is_refused_with_the_way_out() -> None:
    class Elsewhere:
        device = torch.device("cuda:0")

    with pytest.raises(InvalidArgumentError, match=r"cuda:0.*batch\.to\(device\)"):
        check_generator(Elsewhere())  # type: ignore[arg-type]
