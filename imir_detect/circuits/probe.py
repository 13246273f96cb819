"""What a weights-only probe is made of: the vocabulary, the context and the random state.

Beside it stand the two questions that every in-context circuit is judged by: at which places it
holds (`cover`), and whether an answer wins (`wins`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Bool, Float, Int
from imir_detect.coordinates.pathsum import Trace
from imir_detect.frame.contexts import Contexts
from imir_detect.weights.model import ModelWeights

SAMPLES = 256  # contexts of one question
NEAR_BEST = 0.85  # places belong to a circuit's coverage from this share of its best place


@dataclass(frozen=True)
class Probe:
    """- `vocabulary`: tokens that contexts are drawn from. `context`: their length.
    - `samples`: contexts per question. `seed`: of all draws; each question has its own stream."""

    weights: ModelWeights
    vocabulary: Int[Tensor, " vocab"]
    context: int
    samples: int = SAMPLES
    seed: int = 0

    def generator(self, stream: int) -> torch.Generator:
        """A fresh generator for one question."""
        return torch.Generator().manual_seed(1_000_003 * self.seed + stream)


def at_query(values: Float[Tensor, "n pos ..."], contexts: Contexts) -> Tensor:
    """The entries of a (n, pos, ...) tensor at every context's query."""
    return values[contexts.rows, contexts.query]


def wins(weights: ModelWeights, final: Float[Tensor, "n d_model"], wanted: Tensor) -> Tensor:
    """Whether the wanted token's logit beats every other one; a tie loses. (n,), 0.0 or 1.0."""
    result = []
    for start in range(0, len(final), 256):
        rows, tokens = final[start : start + 256], wanted[start : start + 256]
        logits = rows @ weights.W_U + weights.b_U
        own = logits.gather(1, tokens[:, None])
        others = logits.scatter(1, tokens[:, None], float("-inf")).max(1, keepdim=True).values
        margin = (own - others)[:, 0]
        result.append(margin > 1e-9 * logits.abs().amax(1).clamp(min=1e-9))
    return torch.cat(result).double()


def answers(weights: ModelWeights, trace: Trace, contexts: Contexts) -> Tensor:
    """`wins` at the query of every context."""
    return wins(weights, at_query(trace.final, contexts), contexts.wanted)


def cover(score: Float[Tensor, " n"], contexts: Contexts, length: int) -> Bool[Tensor, "pos pos"]:
    """The (query, copy) cells where a score is at least `NEAR_BEST` of what it is at its best.

    Rows and columns are chosen in turn: a circuit trained on aligned blocks holds for every other
    place only. Choosing inflates the mean over what was chosen; strength is therefore measured on
    contexts drawn anew from the cells.
    """
    rows = columns = torch.ones(length, dtype=torch.bool)
    links = contexts.links if contexts.links.numel() else contexts.match[:, None]
    each = score.repeat_interleave(links.shape[1])
    for _ in range(3):
        keep = rows[contexts.query].repeat_interleave(links.shape[1])
        columns = near_best(each, links.reshape(-1), keep, length)
        rows = near_best(score, contexts.query, columns[links].all(1), length)
    return rows[:, None] & columns[None, :]


def near_best(score: Tensor, place: Tensor, keep: Tensor, length: int) -> Bool[Tensor, " pos"]:
    """Places whose mean score, over the contexts to `keep`, is near that of the best place."""
    total = torch.zeros(length, dtype=score.dtype).index_add_(0, place[keep], score[keep])
    count = torch.bincount(place[keep], minlength=length).clamp(min=1)
    mean = total / count
    # A place seen once or twice is no evidence of a best: pull it towards the overall mean. A
    # place is left out only where its mean falls short by more than its own standard error.
    overall = score[keep].mean() if keep.any() else score.new_zeros(())
    shrunk = (total + 2 * overall) / (count + 2)
    error = (shrunk * (1 - shrunk)).clamp(min=0).sqrt() / count.sqrt()
    return (mean + error >= NEAR_BEST * shrunk.max()) & (mean > 0)
