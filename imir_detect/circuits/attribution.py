"""Where a score or a logit comes from: exact splits over the sources of the residual stream.

A score is bilinear in what the query and the key read, and a logit is linear in what the output
reads, so each splits into one term a source, and the terms add up to the whole. All functions give
contrasts: what the wanted position (or token) gets minus the mean of its competitors, in nats,
averaged over the contexts.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex
from imir_detect.circuits.probe import at_query
from imir_detect.coordinates.pathsum import EMBED, Edge, Node, Trace
from imir_detect.frame.contexts import Contexts
from imir_detect.weights.forward import Side, finish, inverse_rms, mlp
from imir_detect.weights.model import ModelWeights

# A source counts when it brings at least this share of the positive total. Where many heads bring a
# little each, the first share leaves too much out; the next is tried until the circuit by itself
# answers nearly as often as the whole model (`ENOUGH` of it).
SHARES = (0.1, 0.04, 0.015)
ENOUGH = 0.95
Source = TypeVar("Source", bound=Hashable)


def sources(trace: Trace, layer: int) -> dict[Node, Float[Tensor, "n pos d_model"]]:
    """What stands in the residual stream before `layer`, by source: the embedding (with biases
    and MLPs, which extend it) and every earlier head. The values add up to the residual."""
    parts: dict[Node, Tensor] = {EMBED: trace.embedded + sum(trace.rest[:layer], torch.tensor(0.0))}
    for earlier, written in enumerate(trace.written[:layer]):
        for head in range(written.shape[1]):
            parts[(earlier, head)] = written[:, head]
    return parts


def leading(terms: dict[Source, float], share: float = SHARES[0]) -> list[Source]:
    """The sources (or edges) that bring at least `share` of the positive total, largest first."""
    total = sum(value for value in terms.values() if value > 0)
    kept = [node for node, value in terms.items() if total > 0 and value >= share * total]
    return sorted(kept, key=lambda node: -terms[node])


class ScoreSplit:
    """Contrast of one head's score between a wanted position and the other visible ones."""

    def __init__(
        self,
        weights: ModelWeights,
        trace: Trace,
        contexts: Contexts,
        head: HeadIndex,
        target: Tensor,
    ) -> None:
        self.weights, self.trace, self.contexts = weights, trace, contexts
        self.layer, self.head = head
        self.target = target
        self.parts = sources(trace, self.layer)
        self._factor = trace.inverse_rms[self.layer]
        whole = sum(self.parts.values(), torch.tensor(0.0)) * self._factor
        self._query = self._query_rows(whole @ weights.W_Q[head] + weights.b_Q[head], constant=True)
        self._key = self._key_contrast(whole @ weights.W_K[head] + weights.b_K[head], constant=True)

    def _finish(self, side: Side, rows: Tensor, *, constant: bool) -> Float[Tensor, "n pos d_head"]:
        factor = self.trace.qk_factor(self.layer, side, self.head)
        finished = finish(
            self.weights, self.layer, side, rows[:, None], factor, [self.head], constant=constant
        )
        return finished[:, 0]

    def _query_rows(self, rows: Tensor, *, constant: bool = False) -> Float[Tensor, "n d_head"]:
        return at_query(self._finish("Q", rows, constant=constant), self.contexts)

    def _key_contrast(self, rows: Tensor, *, constant: bool = False) -> Float[Tensor, "n d_head"]:
        """Key at the wanted position minus the mean key of the other visible positions."""
        keys = self._finish("K", rows, constant=constant)
        index, query = self.contexts.rows, self.contexts.query
        visible = torch.arange(keys.shape[1]) <= query[:, None]
        wanted = keys[index, self.target]
        others = (keys * visible[..., None]).sum(1) - wanted
        return wanted - others / query[:, None]

    def _keys_of(self, node: Node, part: Tensor) -> Tensor:
        """What a source brings to the keys; the embedding brings the bias, too (under rotation it
        depends on the place)."""
        head = (self.layer, self.head)
        rows = (part * self._factor) @ self.weights.W_K[head]
        return rows + self.weights.b_K[head] if node == EMBED else rows

    def total(self) -> float:
        """The whole contrast: how many nats more the wanted position gets."""
        return float((self._query * self._key).sum(-1).mean())

    def by_key(self) -> dict[Node, float]:
        """Terms of the sources that the key reads."""
        return {
            node: float(
                (self._query * self._key_contrast(self._keys_of(node, part))).sum(-1).mean()
            )
            for node, part in self.parts.items()
        }

    def by_query(self) -> dict[Node, float]:
        """Terms of the sources that the query reads (the query bias aside)."""
        W_Q = self.weights.W_Q[self.layer, self.head]
        return {
            node: float((self._query_rows((part * self._factor) @ W_Q) * self._key).sum(-1).mean())
            for node, part in self.parts.items()
        }

    def by_key_token(self, feeder: HeadIndex, position: Tensor) -> float:
        """The part of a feeder's term that it carries, in the wanted key, from one position."""
        pattern = self.trace.attention[feeder[0]][:, feeder[1]]
        rows = self.contexts.rows
        share = pattern[rows, self.target, position]
        residual = sum(sources(self.trace, feeder[0]).values(), torch.tensor(0.0))
        read = (residual * self.trace.inverse_rms[feeder[0]])[rows, position]
        moved = share[:, None] * (read @ self.weights.W_V[feeder] @ self.weights.W_O[feeder])
        # The wanted places differ from context to context: rows of zeros stand elsewhere.
        brought = torch.zeros_like(residual)
        brought[rows, self.target] = moved * self._factor[rows, self.target]
        keys = self._finish("K", brought @ self.weights.W_K[self.layer, self.head], constant=False)
        return float((self._query * keys[rows, self.target]).sum(-1).mean())


def composition(split: ScoreSplit, head: HeadIndex, share: float = SHARES[0]) -> set[Edge]:
    """The K and Q edges by which earlier heads bring their share to a head's score."""
    keys, queries = leading(split.by_key(), share), leading(split.by_query(), share)
    edges = {Edge(node, head, "K") for node in keys if node != EMBED}
    return edges | {Edge(node, head, "Q") for node in queries if node != EMBED}


def logit_margins(
    weights: ModelWeights, trace: Trace, contexts: Contexts, against: Tensor | None
) -> dict[Node, Float[Tensor, " n"]]:
    """What every source adds to the wanted token's logit at the query, over its competitors.

    A head's term is what it writes times the logit's slope there: directly, and through the MLPs
    after it (linear about the residual that stands there). The embedding has all the rest, so that
    the terms add up to the logit. `against` (n, m): competing tokens, whose mean is taken; None:
    all tokens of the vocabulary (whose mean logit is zero, as logits are centred).
    """
    wanted = weights.W_U.T[contexts.wanted]
    if against is not None:
        wanted = wanted - weights.W_U.T[against].mean(1)
    slope = at_query(trace.inverse_rms[-1], contexts) * wanted
    margins: dict[Node, Tensor] = {EMBED: (at_query(trace.final, contexts) * wanted).sum(-1)}
    for layer in reversed(range(weights.n_layers)):
        through = _through_mlp(weights, trace, contexts, layer, slope)
        after = slope if weights.parallel else slope + through
        written = at_query(trace.written[layer].transpose(1, 2), contexts)
        for head in range(weights.n_heads):
            margins[(layer, head)] = (written[:, head] * after).sum(-1)
            margins[EMBED] = margins[EMBED] - margins[(layer, head)]
        slope = slope + through
    return margins


def _through_mlp(
    weights: ModelWeights, trace: Trace, contexts: Contexts, layer: int, slope: Tensor
) -> Float[Tensor, "n d_model"]:
    """A slope after the layer's MLP, pulled back to what the MLP reads (its norm held fixed)."""
    entering = trace.before_mlp[layer]
    if entering is None:
        return torch.zeros_like(slope)
    rows = at_query(entering, contexts)
    factor = inverse_rms(weights, rows, layer)
    pull = torch.func.vjp(lambda x: mlp(weights, layer, x, factor), rows)[1]
    pulled: Tensor = pull(slope)[0]
    return pulled


def value_margins(
    weights: ModelWeights, trace: Trace, contexts: Contexts, head: HeadIndex, position: Tensor
) -> dict[Node, float]:
    """What every source brings, through the head's output-value map, from one position to the
    wanted token's logit over the vocabulary's mean."""
    layer, index = head
    rows = contexts.rows
    pattern = trace.attention[layer][:, index][rows, contexts.query, position]
    read_out = weights.W_V[head] @ weights.W_O[head] @ weights.W_U
    factor = trace.inverse_rms[layer][rows, position]
    result = {}
    for node, part in sources(trace, layer).items():
        logits = (part[rows, position] * factor) @ read_out
        result[node] = float((pattern * logits.gather(1, contexts.wanted[:, None])[:, 0]).mean())
    return result
