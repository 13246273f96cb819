"""Every knob check trips, with what was got, what is allowed and what to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from imir_detect.errors import (
    ImirError,
    InvalidArgumentError,
    UnknownNameError,
    UnreadableFileError,
)
from imir_detect.tasks import make_task

BAD: list[tuple[str, dict[str, Any], list[str]]] = [
    ("recall", {"n_blocks": 0}, ["got n_blocks=0", "wanted at least 1", "raise n_blocks"]),
    ("recall", {"n_blocks": 2.5}, ["n_blocks=2.5", "a whole number"]),
    ("recall", {"n_blocks": True}, ["n_blocks=True", "a whole number"]),
    ("recall", {"zipf": "steep"}, ["zipf='steep'", "a number"]),
    ("recall", {"zipf": float("nan")}, ["zipf=nan", "a number"]),
    ("recall", {"zipf": -1.0}, ["zipf=-1.0", "at least 0"]),
    ("recall", {"directed": 1}, ["directed=1", "True or False"]),
    ("recall", {"variability": 1.5}, ["variability=1.5", "[0, 1]", "mend variability"]),
    ("recall", {"present": -0.1}, ["present=-0.1", "[0, 1]"]),
    ("recall", {"burstiness": 9}, ["burstiness=9 with 8 blocks", "lower burstiness"]),
    (
        "recall",
        {"burstiness": 8, "query_never_first": True},
        ["burstiness=8", "one fewer with query_never_first"],
    ),
    ("recall", {"n_common": 31}, ["n_common=31", "an even number"]),
    ("recall", {"n_common": 16}, ["n_common=16 with 8 blocks", "at least 18 common tokens"]),
    ("recall", {"n_common": 20, "variability": 0.5}, ["n_common=20 with variability=0.5", "got 4"]),
    ("recall", {"n_rare": 15}, ["n_rare=15 with 8 blocks", "at least 16 rare tokens"]),
    ("recall", {"n_rare": -2}, ["n_rare=-2", "at least 0"]),
    ("recall", {"offsets": "scattered"}, ["'scattered'", "consecutive, random, disjoint"]),
    ("recall", {"positions": 40}, ["positions=40 with consecutive offsets", "0 .. 16"]),
    ("recall", {"offsets": "disjoint", "positions": 17}, ["positions=17", "at least 18"]),
    ("recall", {"offsets": "random", "positions": 1}, ["positions=1", "at least 2"]),
    ("ngram", {"block_length": 5}, ["block_length=5", "2, 3 or 4"]),
    ("ngram", {"stems": 2}, ["stems=2, which spell 4 keys of 2 tokens", "8 .. 4096"]),
    ("ngram", {"block_length": 4, "stems": 17}, ["4913 keys", "change stems"]),
    ("ngram", {"n_rare": 11}, ["n_rare=11", "at least 12 rare tokens"]),
    ("ngram", {"label_noise": 2.0}, ["label_noise=2.0"]),
    ("k_hop", {"hops": 5}, ["hops=5", "1 .. 4"]),
    ("k_hop", {"structure": "tree"}, ["'tree'", "cycle, permutation, chain"]),
    ("k_hop", {"n_rare": 11}, ["n_rare=11 with 6 items", "at least 12", "shortcut"]),
    ("k_hop", {"hops": 4, "n_blocks": 4}, ["4 links", "at least 5 for 4 hops on a cycle"]),
    ("k_hop", {"distractors": 1}, ["distractors=1", "0, or a cycle of at least 2"]),
    ("k_hop", {"distractors": -2}, ["distractors=-2", "at least 0"]),
    ("k_hop", {"distractors": 4}, ["2 links", "at least 3"]),
    ("ioi", {"n_blocks": 2, "n_rare": 3}, ["n_rare=3", "two names for every sentence"]),
    ("ioi", {"burstiness": 3}, ["burstiness=3 with 2 blocks"]),
    ("conditional", {"conditions": 1}, ["conditions=1", "at least 2"]),
    ("conditional", {"n_blocks": 7}, ["7 different blocks with conditions=2", "a multiple"]),
    ("conditional", {"n_rare": 11}, ["n_rare=11", "at least 12"]),
    ("inversion", {"structure": "chain"}, ["'chain'", "cycle, permutation"]),
    ("inversion", {"n_blocks": 3, "burstiness": 3}, ["1 different blocks", "at least 2"]),
    ("inversion", {"n_rare": 7}, ["n_rare=7", "one for every item"]),
    ("automaton", {"arcs": 4}, ["arcs=4 with symbols=3", "no more arcs than symbols"]),
    ("automaton", {"n_rare": 2}, ["n_rare=2", "one for every symbol"]),
    ("automaton", {"block_length": 1}, ["block_length=1", "at least 2"]),
    ("fragments", {"n_blocks": 7, "depth": 2}, ["n_blocks=7 with depth=2", "a multiple of depth"]),
    ("fragments", {"binary": 7}, ["binary=7 with 6 chains", "no more than the chains"]),
    ("fragments", {"n_rare": 8}, ["n_rare=8", "a conclusion for every rule"]),
    ("text", {"repeat": 30}, ["repeat=30 with window=24", "no more than the window"]),
    ("text", {"window": 5000}, ["window=5000 with a text of", "shorter than the text"]),
    ("mixture", {"parts": ()}, ["no parts", "at least one"]),
    ("mixture", {"weights": (1.0,)}, ["weights=(1.0,) for 2 parts", "a number for every part"]),
    ("mixture", {"weights": (0.0, 0.0)}, ["not all 0"]),
    ("mixture", {"segments": 0}, ["segments=0", "at least 1"]),
    ("copy_last", {"offset": 1}, ["offset=1", "use offset_copy"]),
    ("offset_copy", {"offset": 24}, ["offset=24 with n_tokens=24", "below n_tokens"]),
    ("offset_copy", {"offset": 0}, ["offset=0", "at least 1"]),
    ("unigram", {"concentration": 0.0}, ["concentration=0.0", "above 0"]),
    ("unigram", {"n_common": 1}, ["n_common=1", "at least 2"]),
    ("majority", {"n_tokens": 16}, ["n_tokens=16", "an odd number"]),
    ("sorting", {"n_items": 0}, ["n_items=0", "at least 1"]),
    ("periodic", {"period": 25}, ["period=25 with n_tokens=24", "at most n_tokens"]),
]


@pytest.mark.parametrize(("name", "knobs", "said"), BAD, ids=str)
def test_a_knob_that_does_not_fit_says_so(
    name: str, knobs: dict[str, Any], said: list[str]
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        make_task(name, **knobs)
    text = str(caught.value)
    assert text.startswith(f"these knobs of {name} do not fit; got ")
    assert "; wanted " in text
    assert "; next step: " in text
    for part in said:
        assert part in text


NO_PAIRS: list[tuple[str, dict[str, Any], str]] = [
    ("recall", {"n_blocks": 2, "burstiness": 2}, "not the query's"),
    ("ngram", {"n_blocks": 1}, "not the query's"),
    ("k_hop", {"structure": "chain", "n_blocks": 2}, "a second item from which k steps are left"),
    ("fragments", {"n_blocks": 4, "binary": 1}, "at least two of each"),
    ("automaton", {"arcs": 1}, "another arc"),
    ("automaton", {"block_length": 2}, "blocks of at least 3"),
]


@pytest.mark.parametrize(("name", "knobs", "said"), NO_PAIRS)
def test_settings_without_a_corrupt_question_say_so(
    name: str, knobs: dict[str, Any], said: str
) -> None:
    task = make_task(name, **knobs)
    task.sample(3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(InvalidArgumentError, match=said):
        task.pairs(3, generator=torch.Generator().manual_seed(0))


def test_a_mixture_takes_only_parts_with_consecutive_positions() -> None:
    with pytest.raises(InvalidArgumentError, match="consecutive positions"):
        make_task("mixture", parts=(make_task("recall", offsets="random"),))
    with pytest.raises(InvalidArgumentError, match="labelled tasks"):
        make_task("mixture", parts=(42,))
    with pytest.raises(UnknownNameError, match=r"recal'.*recall"):
        make_task("mixture", parts=("recal",))


def test_a_text_that_cannot_be_read_or_has_one_word_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match=r"No such file.*UTF-8 text file"):
        make_task("text", file=str(tmp_path / "missing.txt"))
    latin = tmp_path / "latin.txt"
    latin.write_bytes("déjà vu".encode("latin-1"))
    with pytest.raises(UnreadableFileError, match="UnicodeDecodeError"):
        make_task("text", file=str(latin))
    dull = tmp_path / "dull.txt"
    dull.write_text("la " * 50, encoding="utf-8")
    task = make_task("text", file=str(dull))
    with pytest.raises(InvalidArgumentError, match="two stretches end in different words"):
        task.pairs(3, generator=torch.Generator().manual_seed(0))


def test_an_unknown_task_names_those_that_there_are() -> None:
    with pytest.raises(ImirError, match=r"automaton, .*unigram"):
        make_task("recal")
