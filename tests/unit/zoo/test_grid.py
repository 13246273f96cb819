"""The grid: every entry makes sense, and the splits share neither architectures nor tasks."""

import pytest

from imir_detect.zoo.entry import SPLITS
from imir_detect.zoo.fresh import FRESH_ARCHITECTURES
from imir_detect.zoo.grid import ARCHITECTURES, grid


def test_names_and_seeds_are_each_entrys_own() -> None:
    entries = grid()
    assert len({entry.name for entry in entries}) == len(entries) > 400
    assert len({entry.recipe.seed for entry in entries}) == len(entries)


def shapes(*splits: str) -> set[str]:
    found = [a for a in (*ARCHITECTURES, *FRESH_ARCHITECTURES) if a.split in splits]
    return {str((sorted(a.shape.items()), a.tied, a.sinusoidal)) for a in found}


def test_the_held_out_split_shares_no_architecture_and_no_task_with_those_before_it() -> None:
    def tasks(*splits: str) -> set[tuple[str, bool]]:
        found = [e for e in grid() if e.split in splits]
        return {(entry.task, entry.knobs.get("directed", False)) for entry in found}

    assert not shapes("held-out") & shapes("training", "development")
    assert not tasks("held-out") & tasks("training", "development")


def test_the_fresh_split_shares_no_architecture_and_no_set_of_knobs_with_any_other() -> None:
    sizes = ("n_blocks", "n_common", "n_rare")

    def knobs(*splits: str) -> set[str]:
        found = [e for e in grid() if e.split in splits]
        return {
            str((e.task, sorted((k, v) for k, v in e.knobs.items() if k not in sizes)))
            for e in found
        }

    others = ("training", "development", "held-out")
    assert not shapes("fresh") & shapes(*others)
    assert not knobs("fresh") & knobs(*others)
    assert len(grid("fresh")) >= 190


@pytest.mark.parametrize("split", SPLITS)
def test_every_entry_fits_its_model(split) -> None:
    for entry in grid(split):
        task, spec = entry.make()
        assert (task.vocab_size, task.n_positions) == (spec.d_vocab, spec.n_ctx)
        assert task.length == task.n_positions  # stacks are trained on consecutive positions


def test_entries_that_train_together_agree_in_all_that_a_stack_shares() -> None:
    stacks = {}
    for entry in grid():
        stacks.setdefault(entry.stack, []).append(entry)
    for members in stacks.values():
        assert len({str(entry.make()[1]) for entry in members}) == 1
        assert len({(e.recipe.steps, e.recipe.rate, e.recipe.batch) for e in members}) == 1
    assert max(len(members) for members in stacks.values()) > 10
