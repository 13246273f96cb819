"""Extended embeddings: what a token is to layer l, MLPs and earlier heads included.

For models too deep to sum their paths, or with MLPs that are not read, the basis of layer l is not
W_E but the mean residual there, as heads read it (normed): of a place (over tokens), of the token
that stands in it, and of the token before it (what previous-token heads and what follows them have
made of it). All come from random contexts in which nothing repeats, so nothing that answers a
repetition is in them.

Means are taken over two halves of the contexts apart. A query read with one half meets keys read
with the other; otherwise the context that both saw would look like a match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex, Int
from imir_detect.frame.contexts import distinct_tokens
from imir_detect.linalg import DTYPE
from imir_detect.progress import bar
from imir_detect.weights.forward import normed
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.unembed import by_block

Run = Callable[[Tensor], list[Tensor]]  # tokens to residuals before each layer and at the end
BATCH = 8  # contexts of one forward pass
LEAST_NORM = 1e-12


@dataclass(frozen=True)
class Extended:
    """Means of normed residuals on random contexts; one entry a layer, and one for the output.

    - `tokens` (token): the sampled tokens. `halves`: 2, along the first axis of the next two.
    - `own`, `before` (half, token, d_model): deviation from `place` where the token stands, and one
      place later. `place` (pos, d_model). `rms` (pos, 1): typical root mean square, 1 where the
      model has no norm.
    - `named` (half, token): the token whose logit is highest on average, itself left out, logits
      centred over the sampled tokens; `lead` (half, token): nats by which it leads the row's mean,
      `spread` (half, token): standard deviation of the row without it.
    """

    tokens: Int[Tensor, " token"]
    place: tuple[Float[Tensor, "pos d_model"], ...]
    own: tuple[Float[Tensor, "half token d_model"], ...]
    before: tuple[Float[Tensor, "half token d_model"], ...]
    rms: tuple[Float[Tensor, "pos 1"], ...]
    named: Int[Tensor, "half token"]
    lead: Float[Tensor, "half token"]
    spread: Float[Tensor, "half token"]
    contexts: int

    @property
    def context(self) -> int:
        return self.place[0].shape[0]

    @staticmethod
    def take(
        weights: ModelWeights,
        run: Run,
        vocabulary: Int[Tensor, " vocab"],
        context: int,
        *,
        tokens: int = 256,
        occurrences: int = 8,
        seed: int,
    ) -> Extended:
        """Sample `tokens` of the vocabulary and run random contexts in which each stands about
        `occurrences` times. `run` gives the residuals before each layer and at the end."""
        generator = torch.Generator().manual_seed(seed)
        size = min(tokens, len(vocabulary))
        sample = vocabulary[torch.randperm(len(vocabulary), generator=generator)[:size]]
        length = min(context, size)
        n = max(2, -(-size * occurrences // length))
        index = distinct_tokens(n, length, torch.arange(size), generator=generator)
        sums = _Sums(weights, size, length)
        for start in bar(range(0, n, BATCH), what="extended embeddings"):
            rows = index[start : start + BATCH]
            half = (torch.arange(start, start + len(rows)) >= n // 2).long()
            sums.add(rows, half, run(sample[rows]))
        return sums.means(sample, n)


def read_out(
    weights: ModelWeights, extended: Extended, head: HeadIndex
) -> tuple[Float[Tensor, "token d_head"], Float[Tensor, "token d_head"]]:
    """A and B with A B^T = what a head's output-value map adds to the logits of the sampled tokens,
    from their extended embeddings, at the output's typical norm. Position 0, whose norm is its own,
    is left out of that. B has no rows where output tokens are not input tokens."""
    return next(read_outs(weights, extended, [head]))


def read_outs(
    weights: ModelWeights, extended: Extended, heads: Iterable[HeadIndex] | None = None
) -> Iterator[tuple[Float[Tensor, "token d_head"], Float[Tensor, "token d_head"]]]:
    """`read_out` of several heads, by default of every one, in order."""
    tokens = extended.tokens if weights.same_vocabulary else extended.tokens[:0]
    columns = weights.W_U[:, tokens].T.contiguous()
    typical = float(extended.rms[-1][1:].mean())
    for layer, index in weights.heads if heads is None else heads:
        A = extended.own[layer].mean(0) @ weights.W_V[layer, index] / typical
        yield A, columns @ weights.W_O[layer, index].T


class _Sums:
    """Running sums over contexts, so that no residual is kept."""

    def __init__(self, weights: ModelWeights, size: int, length: int) -> None:
        self.weights, self.size = weights, size
        self.normed = [weights.rms] * weights.n_layers + [bool(weights.rms_out)]
        self.n = 0
        self.place: list[Tensor] = []
        self.own: list[Tensor] = []
        self.before: list[Tensor] = []
        self.rms: list[Tensor] = []
        self.count = torch.zeros(2, size, length, dtype=DTYPE)
        self.after = torch.zeros(2, size, length, dtype=DTYPE)
        self.read = torch.zeros(2 * size, weights.d_model, dtype=DTYPE)  # by the unembedding

    def add(
        self, index: Int[Tensor, "n pos"], half: Int[Tensor, " n"], residuals: list[Tensor]
    ) -> None:
        n, length = index.shape
        d_model = residuals[0].shape[-1]
        if not self.place:
            shape = (2 * self.size, d_model)
            for _ in residuals:
                self.place.append(torch.zeros(length, d_model, dtype=DTYPE))
                self.own.append(torch.zeros(shape, dtype=DTYPE))
                self.before.append(torch.zeros(shape, dtype=DTYPE))
                self.rms.append(torch.zeros(length, 1, dtype=DTYPE))
        self.n += n
        slot = index + self.size * half[:, None]  # (half, token), flattened
        places = torch.arange(length).expand(n, -1)
        flat = self.count.view(2 * self.size, length)
        flat.index_put_((slot[:, 1:], places[:, 1:]), torch.ones(1, dtype=DTYPE), accumulate=True)
        flat = self.after.view(2 * self.size, length)
        flat.index_put_((slot[:, 1:-1], places[:, 2:]), torch.ones(1, dtype=DTYPE), accumulate=True)
        for layer, rows in enumerate(residuals):
            rms = torch.ones_like(rows[..., :1])
            if self.normed[layer]:
                rms = rows.pow(2).mean(-1, keepdim=True).sqrt().clamp(min=LEAST_NORM)
            unit = rows / rms
            self.place[layer] += unit.sum(0)
            self.rms[layer] += rms.sum(0)
            self.own[layer].index_add_(0, slot[:, 1:].flatten(), unit[:, 1:].flatten(0, 1))
            self.before[layer].index_add_(0, slot[:, 1:-1].flatten(), unit[:, 2:].flatten(0, 1))
        last = normed(self.weights, self.weights.n_layers, residuals[-1])
        self.read.index_add_(0, slot[:, 1:].flatten(), last[:, 1:].flatten(0, 1))

    def means(self, sample: Tensor, contexts: int) -> Extended:
        place = [total / self.n for total in self.place]
        rms = [total / self.n for total in self.rms]

        def deviation(total: Tensor, count: Tensor, layer: int) -> Tensor:
            mean = total.view(2, self.size, -1) - count @ place[layer]
            return mean / count.sum(-1, keepdim=True).clamp(min=1)

        layers = range(len(place))
        named, lead, spread = self._named(sample)
        return Extended(
            tokens=sample,
            place=tuple(place),
            own=tuple(deviation(self.own[i], self.count, i) for i in layers),
            before=tuple(deviation(self.before[i], self.after, i) for i in layers),
            rms=tuple(rms),
            named=named,
            lead=lead,
            spread=spread,
            contexts=contexts,
        )

    def _named(self, sample: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Each row's largest mean logit but its own, by how much it leads the others' mean, and
        their spread."""
        count = self.count.sum(-1, keepdim=True)
        there = (count > 0).to(DTYPE)  # a token that a half lacks has logits of zero there
        means = torch.cat([self.read.view(2, self.size, -1) / count.clamp(min=1), there], -1)
        means = (means - means.mean(1, keepdim=True)).flatten(0, 1)  # and so are the logits
        rows, there = means[:, :-1], means[:, -1:]
        own, vocab = sample.repeat(2), self.weights.vocab_out
        same = vocab > int(sample.max())
        best = torch.full((len(rows),), -torch.inf, dtype=DTYPE)
        named = torch.zeros(len(rows), dtype=torch.long)
        total, square = torch.zeros(2, len(rows), dtype=DTYPE)
        for first, logits in by_block(self.weights, rows, there):
            here = ((own >= first) & (own < first + logits.shape[1])).nonzero()[:, 0]
            if same:
                logits[here, own[here] - first] = 0.0
            total += logits.sum(1)
            square += logits.square().sum(1)
            if same:
                logits[here, own[here] - first] = -torch.inf
            largest, index = logits.max(1)
            named = torch.where(largest > best, first + index, named)
            best = torch.maximum(best, largest)
        others = max(1, vocab - 2)
        mean = (total - best) / others
        spread = ((square - best.square()) / others - mean.square()).clamp(min=LEAST_NORM).sqrt()
        shape = (2, self.size)
        return named.view(shape), (best - mean).view(shape), spread.view(shape)
