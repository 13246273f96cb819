"""Closed ceilings: expected accuracy and entropy of mixtures of simple laws."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imir_detect.tasks.base import Ceiling

if TYPE_CHECKING:
    from imir_detect.tasks.recall import AssociativeRecall


@dataclass(frozen=True)
class Law:
    """One token with probability `top`, `others` tokens that share the rest; `weight` of it."""

    weight: float
    top: float
    others: int

    def noisy(self, noise: float, vocab: int) -> tuple[float, float]:
        """(best accuracy, entropy in nats) when the answer is replaced uniformly with `noise`."""
        each = (1 - self.top) / self.others if self.others else 0.0
        masses = [(1, self.top), (self.others, each), (vocab - 1 - self.others, 0.0)]
        entropy = best = 0.0
        for count, p in masses:
            p = (1 - noise) * p + noise / vocab
            best = max(best, p if count else 0.0)
            entropy -= count * p * math.log(p) if p > 0 else 0.0
        return best, entropy


def mixture(laws: Iterable[Law], noise: float, vocab: int) -> tuple[float, float]:
    """Mean accuracy and entropy when the predictor knows which law holds."""
    accuracy = loss = 0.0
    for law in laws:
        a, h = law.noisy(noise, vocab)
        accuracy += law.weight * a
        loss += law.weight * h
    return accuracy, loss


def certain(noise: float, vocab: int) -> tuple[float, float]:
    """Best accuracy and entropy of an answer that is certain but for label noise."""
    return Law(1.0, 1.0, 0).noisy(noise, vocab)


def recall_ceiling(task: AssociativeRecall) -> Ceiling:
    """See `AssociativeRecall.ceiling`."""
    f_r, f_v, n = task.rare_frequency, task.variability, task.n_blocks
    noise, vocab = task.label_noise, task.vocab_size
    absent = (1 - f_r) * (1 - f_v) * (1 - task.present)
    uniform_pairs = task.zipf == 0

    both = mixture([Law(1.0, 1.0, 0)], noise, vocab)

    # An absent value is one of the candidates that the fillers leave: each common filler shows
    # two tokens of the class (one, if R is directed), and so narrows the guess.
    context: tuple[float | None, float | None] = (None, None)
    if uniform_pairs or not absent:
        laws = [Law(1 - absent, 1.0, 0)]
        for k in range(n + 1) if absent else ():
            weight = math.comb(n, k) * (1 - f_r) ** k * f_r ** (n - k)
            left = task.n_pairs - k if task.directed else task.n_common - 1 - 2 * k
            laws.append(Law(absent * weight, 1 / left, left - 1))
        context = mixture(laws, noise, vocab)

    weights: tuple[float | None, float | None] = (None, None)
    others = task.n_pairs - 1 if task.directed else task.n_common - 2
    if uniform_pairs or not f_v:
        laws = []
        if f_r:
            laws.append(Law(f_r, 1 / (task.n_rare - 1), task.n_rare - 2))
        if f_r < 1:
            # p_R: with f_v = 0 the value is R's, shown or not.
            laws.append(Law(1 - f_r, 1 - f_v, others if f_v else 0))
        weights = mixture(laws, noise, vocab)
    return Ceiling(*context, *weights, *both)
