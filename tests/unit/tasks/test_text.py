"""What is measured of repeated text does not mistake a text known by heart for induction."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from imir_detect.tasks import IGNORE, make_task
from imir_detect.tasks.base import measure
from imir_detect.tasks.text import RepeatedText, vocabulary

WORDS = " ".join(f"w{(7 * i * i + i) % 101}" for i in range(400))


@pytest.fixture
def task(tmp_path: Path) -> RepeatedText:
    file = tmp_path / "words.txt"
    file.write_text(WORDS, encoding="utf-8")
    made = make_task("text", file=str(file))
    assert isinstance(made, RepeatedText)
    return made


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def by_heart(task: RepeatedText, width: int = 2) -> dict[str, float]:
    """Measured of a model that knows what follows every two words of the text, and no more."""
    stream = vocabulary(task.file, task.n_common)[1].tolist()
    known = {tuple(stream[i - width : i]): stream[i] for i in range(width, len(stream))}

    def logits(tokens: Tensor, positions: Tensor | None) -> Tensor:
        out = torch.zeros(*tokens.shape, task.vocab_size)
        for row, place in torch.cartesian_prod(*map(torch.arange, tokens.shape)).tolist():
            seen = tuple(tokens[row, max(0, place + 1 - width) : place + 1].tolist())
            out[row, place, known.get(seen, 0)] = 1.0
        return out

    return measure(task, logits, n=256)


def by_looking(task: RepeatedText) -> dict[str, float]:
    """Measured of a model that says what followed the last copy of the word before it."""

    def logits(tokens: Tensor, positions: Tensor | None) -> Tensor:
        out = torch.zeros(*tokens.shape, task.vocab_size)
        for row, words in enumerate(tokens.tolist()):
            followed: dict[int, int] = {}
            for place, word in enumerate(words):
                out[row, place, followed.get(word, 0)] = 1.0
                followed[word] = words[place + 1] if place + 1 < len(words) else 0
        return out

    return measure(task, logits, n=256)


def test_a_text_known_by_heart_is_no_induction_and_induction_knows_no_text(
    task: RepeatedText,
) -> None:
    heart, looks = by_heart(task), by_looking(task)
    assert min(heart["accuracy"], looks["accuracy"]) > 0.7  # the task does not tell them apart
    assert heart["icl_accuracy"] < 0.2 < 0.9 < heart["iwl_accuracy"]
    assert looks["iwl_accuracy"] == 0 < 0.7 < looks["icl_accuracy"]


def test_windows_of_icl_hold_the_texts_own_words_in_another_order(task: RepeatedText) -> None:
    batch = task.probe("icl", 50, generator=seeded())
    plain = task._windows(50, seeded())
    window = batch.tokens[:, : task.window]
    assert torch.equal(window.sort(1).values, plain.sort(1).values)
    assert not (window == plain).all(1).any()
    asked = batch.targets != IGNORE
    assert torch.equal(batch.tokens.gather(1, batch.answer_position.clamp(min=0))[asked],
                       batch.targets[asked])  # fmt: skip


def test_stretches_of_iwl_are_the_texts_and_their_answers_are_not_shown(
    task: RepeatedText,
) -> None:
    batch = task.probe("iwl", 50, generator=seeded())
    stream = vocabulary(task.file, task.n_common)[1]
    runs = {tuple(run) for run in stream.unfold(0, task.repeat - 1, 1).tolist()}
    for tokens, targets in zip(batch.tokens, batch.targets, strict=True):
        assert tuple(tokens[task.window :].tolist()) in runs
        asked = (targets != IGNORE).nonzero()[:, 0].tolist()
        assert asked
        assert all(targets[t] not in tokens[: t + 1] for t in asked)


def test_a_text_of_few_words_has_no_in_weights_axis(tmp_path: Path) -> None:
    file = tmp_path / "few.txt"
    file.write_text("to be or not to be " * 30, encoding="utf-8")
    assert make_task("text", file=str(file)).probe("iwl", 20, generator=seeded()) is None
