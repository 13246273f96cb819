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
SINGLE = torch.finfo(torch.float32).eps  # how finely models' weights are stored
HARDLY_SEEN = 5  # contexts of a place, below which its mean is no evidence
BEST = 0.95  # rows count as the best from this share of the best one
ON_STRIDE = 0.8  # share of the columns kept that must lie on one stride
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


def resolution(weights: ModelWeights, final: Float[Tensor, "... d_model"]) -> Tensor:
    """Nats (...) up to which logits read from `final` are round-off of single-precision weights:
    eps |x| |u|, u the longest column of the unembedding."""
    return SINGLE * final.norm(dim=-1) * weights.W_U.norm(dim=0).max()


def wins(weights: ModelWeights, final: Float[Tensor, "n d_model"], wanted: Tensor) -> Tensor:
    """Whether the wanted token's logit beats every other one by more than round-off; a tie loses.
    (n,), 0.0 or 1.0."""
    floor = resolution(weights, final)
    result = []
    for start in range(0, len(final), 256):
        rows, tokens = final[start : start + 256], wanted[start : start + 256]
        logits = rows @ weights.W_U + weights.b_U
        own = logits.gather(1, tokens[:, None])
        others = logits.scatter(1, tokens[:, None], float("-inf")).max(1, keepdim=True).values
        result.append((own - others)[:, 0] > floor[start : start + 256])
    return torch.cat([final.new_zeros(0), *result]).double()


def answers(weights: ModelWeights, trace: Trace, contexts: Contexts) -> Tensor:
    """`wins` at the query of every context."""
    return wins(weights, at_query(trace.final, contexts), contexts.wanted)


def cover(score: Float[Tensor, " n"], contexts: Contexts, length: int) -> Bool[Tensor, "pos pos"]:
    """The (query, copy) cells where a score is at least `NEAR_BEST` of what it is at its best.

    A circuit trained on aligned blocks holds for every second or third place only: of all columns
    and of those on one such stride, those start that have the best row (all, unless others are
    clearly better). Rows and columns are then chosen in turn. Choosing inflates the mean over what
    was chosen; strength is therefore measured on contexts drawn anew from the cells.
    """
    links = contexts.links if contexts.links.numel() else contexts.match[:, None]
    query, place, width = contexts.query, torch.arange(length), links.shape[1]
    columns, best = torch.ones(length, dtype=torch.bool), 0.0
    # Blocks of three have a prefix of two, or more hops than one.
    blocks = (2, 3) if width > 1 else (2,)
    strides = [place % stride == start for stride in blocks for start in range(stride)]
    for start in (columns, *strides):
        top = float(_means(score, query, start[links].all(1), length)[2].max())
        if top * NEAR_BEST > best:
            columns, best = start, top
    rows = near_best(score, query, columns[links].all(1), length)
    for _ in range(2):
        keep = rows[query].repeat_interleave(width)
        columns = near_best(score.repeat_interleave(width), links.reshape(-1), keep, length)
        rows = near_best(score, query, columns[links].all(1), length)
    return rows[:, None] & columns[None, :]


def lattice(cells: Bool[Tensor, "pos pos"]) -> Bool[Tensor, "pos pos"]:
    """The cells, with columns added that lie on the same stride as nearly all of those kept.

    A circuit trained on aligned blocks holds for every other column, and may fail at the first of
    them, which its task asks for all the same. Where no stride of 2 to 4 explains the columns, all
    of them are meant.
    """
    kept, place = cells.any(0), torch.arange(cells.shape[1])
    rows, count = cells.any(1), int(kept.sum())
    for stride in (4, 3, 2) if count > 2 else (2,):  # two columns always have a stride
        most = max(range(stride), key=lambda r: int(kept[r::stride].sum()))
        if int(kept[most::stride].sum()) >= ON_STRIDE * count:
            return rows[:, None] & (place % stride == most)
    return rows[:, None].expand_as(cells)


def best_rows(
    score: Float[Tensor, " n"], contexts: Contexts, cells: Bool[Tensor, "pos pos"]
) -> Bool[Tensor, "pos pos"]:
    """The cells of those rows whose score, on these contexts, is hardly less than the best's: of
    places near the best, the ones that the model was trained to answer at."""
    inside = cells[contexts.query, contexts.match]
    rows = torch.zeros(len(cells), dtype=torch.bool)
    rows[best_places(score[inside], contexts.query[inside], cells.any(1), len(cells))] = True
    return cells & rows[:, None]


def best_places(
    score: Tensor, place: Tensor, kept: Bool[Tensor, " pos"], length: int
) -> Int[Tensor, " best"]:
    """Of the places kept, those whose mean score is hardly less than the best one's; all of them
    where none was seen."""
    inside = kept[place]
    shrunk = _means(score, place, inside, length)[2]
    seen = kept & (torch.bincount(place[inside], minlength=length) > 0)
    if not seen.any():
        return kept.nonzero()[:, 0]
    return (seen & (shrunk >= BEST * shrunk[seen].max())).nonzero()[:, 0]


def near_best(score: Tensor, place: Tensor, keep: Tensor, length: int) -> Bool[Tensor, " pos"]:
    """Places whose mean score, over the contexts to `keep`, is near that of the best place."""
    mean, count, shrunk = _means(score, place, keep, length)
    # A place is left out only where its mean falls short by more than its own standard error; one
    # that was hardly seen among many contexts, where what is believed of it falls short.
    error = (shrunk * (1 - shrunk)).clamp(min=0).sqrt() / count.sqrt()
    scarce = (count < HARDLY_SEEN) & (len(score) >= 2 * HARDLY_SEEN * length)
    believed = torch.where(scarce, shrunk, mean + error)
    return (believed >= NEAR_BEST * shrunk.max()) & (mean > 0)


def _means(
    score: Tensor, place: Tensor, keep: Tensor, length: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean score by place, count, and the mean pulled towards the overall one: a place seen once or
    twice is no evidence of a best."""
    total = torch.zeros(length, dtype=score.dtype).index_add_(0, place[keep], score[keep])
    count = torch.bincount(place[keep], minlength=length).clamp(min=1)
    overall = score[keep].mean() if keep.any() else score.new_zeros(())
    return total / count, count, (total + 2 * overall) / (count + 2)
