"""Natural text with known repeats: a window of a text, then a stretch of that window again."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.errors import UnreadableFileError
from imir_detect.strict import read_file
from imir_detect.tasks.base import IGNORE, Axis, Batch, Ceiling
from imir_detect.tasks.blocks import random_order
from imir_detect.tasks.checks import Rule, at_least, require, right_types, shares
from imir_detect.tasks.copying import last_question
from imir_detect.tasks.family import TaskDefaults, check_generator, last_seen
from imir_detect.tasks.labels import ExpectedCircuit, induction

SHIPPED = "harbour.txt"  # a short story written for this package
TRIES = 4  # windows drawn for each one that asks something that it does not show
UNKNOWN = 0  # every word that is not among the most frequent ones
WORD = re.compile(r"\w+(?:'\w+)?|[^\w\s]")


@dataclass(frozen=True)
class RepeatedText(TaskDefaults):
    """A window of consecutive words, then a stretch from a random place of it once more.

    The first word of the stretch tells where it may have started; from the second on, every word
    is asked. Words that stand several times in the window leave doubt, which the law keeps: it is
    uniform over the places whose words agree with the stretch so far.

    A short text can be learned by heart, so that accuracy on the task does not say how a model
    answers. What is measured apart is `icl`, on windows whose words are put in random order first
    (what follows what is then fresh), and `iwl`, on stretches of the text behind a window of
    another place, asked where the answer has not been shown.

    - `window`, `repeat`: words of the two parts.
    - `file`: path of a UTF-8 text; None: the story that the package ships. Words are lower-cased,
      signs are words.
    - `n_common`: most words to tell apart (the most frequent; the rest become one token).
    - `label_noise`: as in recall.

    >>> RepeatedText(window=20, repeat=8).length
    27
    """

    window: int = 24
    repeat: int = 12
    file: str | None = None
    n_common: int = 1024
    label_noise: float = 0.0

    name = "text"

    def __post_init__(self) -> None:
        require(self.name, right_types(self))
        require(self.name, at_least(self, window=2, repeat=2, n_common=1))
        words = len(read_words(self.file))
        rules = [
            Rule(
                self.repeat <= self.window,
                f"repeat={self.repeat} with window={self.window}",
                "no more than the window",
                "lower repeat or raise window",
            ),
            Rule(
                words > self.window,
                f"window={self.window} with a text of {words} words",
                "a window shorter than the text",
                "lower window or choose a longer file",
            ),
        ]
        require(self.name, [*rules, *shares(self, "label_noise")])

    @property
    def words(self) -> tuple[str, ...]:
        """The vocabulary, most frequent first, after the token of unknown words."""
        return vocabulary(self.file, self.n_common)[0]

    @property
    def vocab_size(self) -> int:
        return len(self.words)

    @property
    def length(self) -> int:
        return self.window + self.repeat - 1

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        part = "words that stand once in the window"
        return (induction(covers=part), induction(2, covers="word pairs that stand once in it"))

    def draw(self, n: int, *, generator: torch.Generator) -> Batch:
        window = self._windows(n, generator)
        start = torch.randint(self.window - self.repeat + 1, (n, 1), generator=generator)
        return self._repeat(window, start)

    def probe(self, axis: Axis, n: int, *, generator: torch.Generator) -> Batch | None:
        """See the class; `iwl` is None where the words of a stretch are nearly always shown."""
        check_generator(generator)
        if axis == "icl":
            window = self._windows(n, generator)
            order = random_order(n, self.window, generator=generator)
            starts = self.window - self.repeat + 1
            start = torch.randint(starts, (n, 1), generator=generator)
            return self._repeat(window.gather(1, order), start)
        drawn = TRIES * n
        window, other = (self._windows(drawn, generator) for _ in range(2))
        stretch = other[:, : self.repeat]
        tokens = torch.cat([window, stretch[:, :-1]], dim=1)
        targets = torch.full_like(tokens, IGNORE)
        targets[:, self.window :] = stretch[:, 1:]
        shown = last_seen(tokens, targets, self.vocab_size) >= 0
        targets[shown] = IGNORE
        kept = (targets != IGNORE).any(dim=1).nonzero()[:n, 0]
        if len(kept) < n:
            return None
        return Batch(tokens[kept], targets[kept], torch.full_like(tokens[kept], -1))

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """The last question, and the same window with a stretch that ends in another word.

        Of the other starts, the next one whose last word differs is taken.
        """
        window = self._windows(n, generator)
        starts = self.window - self.repeat + 1
        start = torch.randint(starts, (n, 1), generator=generator)
        return (
            last_question(self._repeat(window, start)),
            last_question(self._repeat(window, self._other_start(window, start, starts))),
        )

    def _windows(self, n: int, generator: torch.Generator) -> Int[Tensor, "n window"]:
        stream = vocabulary(self.file, self.n_common)[1]
        place = torch.randint(len(stream) - self.window + 1, (n, 1), generator=generator)
        return stream[place + torch.arange(self.window)]

    def _other_start(self, window: Tensor, start: Tensor, starts: int) -> Tensor:
        last = self.repeat - 1
        ends = window[:, last : last + starts]
        ahead = (start + torch.arange(starts)) % starts
        differs = ends.gather(1, ahead) != ends.gather(1, start)
        found = Rule(
            bool(differs.any(dim=1).all()),
            f"window={self.window}, repeat={self.repeat}",
            "windows in which two stretches end in different words",
            "lower repeat, or choose a more varied file",
        )
        require(self.name, [found])
        return ahead.gather(1, differs.long().argmax(dim=1, keepdim=True))

    def _repeat(self, window: Tensor, start: Tensor) -> Batch:
        place = start + torch.arange(self.repeat)
        stretch = window.gather(1, place)
        tokens = torch.cat([window, stretch[:, :-1]], dim=1)
        targets = torch.full_like(tokens, IGNORE)
        answer = torch.full_like(tokens, -1)
        targets[:, self.window :], answer[:, self.window :] = stretch[:, 1:], place[:, 1:]
        return Batch(tokens, targets, answer)

    def clean_law(self, batch: Batch) -> Float[Tensor, "asked vocab"]:
        window, stretch = batch.tokens[:, : self.window], batch.tokens[:, self.window :]
        starts = self.window - self.repeat + 1
        agree = torch.ones(len(batch), starts, dtype=torch.bool)
        law = torch.zeros(*batch.tokens.shape, self.vocab_size, dtype=torch.float64)
        for step in range(self.repeat - 1):
            agree &= window[:, step : step + starts] == stretch[:, step, None]
            weight = agree.double() / agree.sum(dim=1, keepdim=True)
            coming = window[:, step + 1 : step + 1 + starts]
            law[:, self.window + step].scatter_add_(1, coming, weight)
        return law[batch.targets != IGNORE]

    def ceiling(self) -> Ceiling:
        """Depends on the text; `law` gives it on samples."""
        return Ceiling(None, None, None, None, None, None)

    def token_name(self, token: int) -> str:
        return self.words[token]


@lru_cache(maxsize=8)
def read_words(file: str | None) -> tuple[str, ...]:
    """The words and signs of a text, lower-cased, in order."""
    try:
        if file is None:
            text = (resources.files("imir_detect.tasks") / "data" / SHIPPED).read_text("utf-8")
        else:
            text = read_file(file).decode("utf-8")
    except (OSError, ValueError) as error:
        raise UnreadableFileError(
            f"cannot read the text {file!r}",
            got=f"{type(error).__name__}: {error}",
            wanted="a UTF-8 text file",
            todo="give the path of a text, or leave file out for the shipped one",
        ) from error
    return tuple(WORD.findall(text.lower()))


@lru_cache(maxsize=8)
def vocabulary(file: str | None, limit: int) -> tuple[tuple[str, ...], Int[Tensor, " words"]]:
    """The vocabulary of a text (most frequent first, ties by spelling), and the text in tokens."""
    words = read_words(file)
    ordered = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))
    kept = [word for word, _ in ordered[:limit]]
    number = {word: i + 1 for i, word in enumerate(kept)}
    stream = torch.tensor([number.get(word, UNKNOWN) for word in words])
    return ("<unknown>", *kept), stream
