"""The coordinates of a model: one row a direction, the same rows for every model of one shape.

Rows, in order: for every head the shifts 1 .. 3 back on the direct path, then the matches of token
identity (both paths direct; key, query or both through one earlier head); then the read-outs, copy
(identity) and associate (R), along the direct path, every head, and every head behind an earlier
one. No row is cut and none is ordered by size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex, Int
from imir_detect.coordinates.effects import ZERO, Reading, read_selection, read_shift
from imir_detect.coordinates.pathsum import Trace
from imir_detect.frame.names import DIRECT, TOKEN_IDENTITY, Path, shift
from imir_detect.weights.forward import SIDES, Side, finish
from imir_detect.weights.model import ModelWeights

SHIFTS = (1, 2, 3)
MOST_TOKENS = 2048  # of a larger vocabulary a seeded sample is read, and the report says so


@dataclass(frozen=True)
class Coordinate:
    """One coordinate of one direction. `layer` and `head` are None for the direct read-out.

    - `effect` (nats), `cosine` in [-1, 1], `z` (None where no null is defined), and `predicted`:
      for shifts and matches the mean attention that the direction by itself gives to what it
      selects; for read-outs the share of tokens for which it puts the selected logit on top.
    """

    unit: str
    layer: int | None
    head: int | None
    path: str
    selection: str
    effect: float
    cosine: float
    z: float | None
    predicted: float


def coordinate_table(
    weights: ModelWeights,
    trace: Trace,
    *,
    relation: Int[Tensor, " vocab"] | None,
    tokens: Int[Tensor, " tokens"],
    seed: int,
) -> tuple[Coordinate, ...]:
    """All coordinates. `trace`: paths summed on random contexts, for the typical norms and the
    attention that shifts get; `tokens`: those read, at most `MOST_TOKENS` of them."""
    generator = torch.Generator().manual_seed(seed)
    if len(tokens) > MOST_TOKENS:
        order = torch.randperm(len(tokens), generator=generator)
        tokens = tokens[order[:MOST_TOKENS]].sort().values
    reader = _Reader(weights, trace, tokens, within(relation, tokens), generator)
    return (*reader.score_rows(), *reader.output_rows())


def within(
    relation: Int[Tensor, " vocab"] | None, tokens: Int[Tensor, " tokens"]
) -> Int[Tensor, " tokens"]:
    """The relation in terms of indices into `tokens`; -1 where the partner is not among them."""
    size = len(tokens)
    if relation is None:
        return torch.full((size,), -1)
    index = torch.full((len(relation) + 1,), -1)
    index[tokens] = torch.arange(size)
    return index[relation[tokens]]


class _Reader:
    """Reads directions off one model; every table stays factored."""

    def __init__(
        self,
        weights: ModelWeights,
        trace: Trace,
        tokens: Tensor,
        relation: Tensor,
        generator: torch.Generator,
    ) -> None:
        self.weights, self.trace = weights, trace
        self.tokens, self.relation = tokens, relation
        # The typical factor of each norm: its mean over random contexts.
        self.norm = [float(f.mean()) for f in trace.inverse_rms]
        self.X = weights.W_E[tokens]
        self.context = trace.embedded.shape[1]
        # Without a table, what a place is to attention shows on a typical token there.
        self.position = (
            weights.W_pos[: self.context]
            if weights.learned_positions
            else self.X.mean(0).expand(self.context, -1)
        )
        count = min(len(tokens), 256)
        self.asked = torch.randperm(len(tokens), generator=generator)[:count]
        self.others = draw_others(
            self.asked, len(tokens), max(1, self.context - 1), generator=generator
        )

    def carried(self, path: Path) -> Float[Tensor, "tokens d_model"]:
        """Token embeddings carried through a path's output-value maps, at typical norms."""
        rows = self.X
        for layer, head in path.heads:
            rows = self.norm[layer] * (rows @ self.weights.W_V[layer, head])
            rows = rows @ self.weights.W_O[layer, head]
        return rows

    # -- scores -------------------------------------------------------------------------------

    def score_rows(self) -> Iterator[Coordinate]:
        w = self.weights
        for layer, head in w.heads:
            for offset in SHIFTS:
                yield self._shift(layer, head, offset)
            factor = self.norm[layer]
            rows = {DIRECT: factor * self.X}
            for earlier in self._earlier(layer):
                rows[Path((earlier,))] = factor * self.carried(Path((earlier,)))
            f, g = (self._qk_norm(layer, head, side) for side in SIDES)
            A = {
                path: token_queries(w, layer, head, x, f, self.context) for path, x in rows.items()
            }
            B = {path: token_keys(w, layer, head, x, g) for path, x in rows.items()}
            yield self._match(layer, head, DIRECT, DIRECT, A, B)
            for path in list(rows)[1:]:
                yield self._match(layer, head, DIRECT, path, A, B)
                yield self._match(layer, head, path, DIRECT, A, B)
                yield self._match(layer, head, path, path, A, B)

    def _earlier(self, layer: int) -> list[HeadIndex]:
        return [node for node in self.weights.heads if node[0] < layer]

    def _qk_norm(self, layer: int, head: int, side: Side) -> Tensor | None:
        """The typical factor of the query-key norm: its mean over random contexts."""
        factor = self.trace.qk_factor(layer, side, head)
        return None if factor is None else factor.mean().view(1, 1, 1, 1)

    def _shift(self, layer: int, head: int, offset: int) -> Coordinate:
        w, kind = self.weights, self.weights.attention[layer]
        x = self.norm[layer] * self.position
        rows = {
            "Q": x @ w.W_Q[layer, head] + w.b_Q[layer, head],
            "K": x @ w.W_K[layer, head] + w.b_K[layer, head],
        }
        query, key = (
            finish(w, layer, side, rows[side][None, None], self._qk_norm(layer, head, side), [head])
            for side in ("Q", "K")
        )
        S = (query @ key.transpose(-1, -2))[0, 0]
        if kind.slopes is not None:
            place = torch.arange(self.context)
            S = S - kind.slopes[head] * (place[:, None] - place)
        reading = read_shift(S, offset)
        pattern = self.trace.attention[layer][:, head]
        back = pattern.diagonal(-offset, 1, 2) if offset < self.context else pattern.new_zeros(1)
        predicted = float(back.mean())
        return _row("shift", layer, head, "direct", str(shift(offset)), reading, predicted)

    def _match(
        self,
        layer: int,
        head: int,
        q: Path,
        k: Path,
        A: dict[Path, Tensor],
        B: dict[Path, Tensor],
    ) -> Coordinate:
        reading = read_selection(A[q], B[k])
        predicted = match_share(A[q], B[k], self.asked, self.others)
        name = f"q:{q} k:{k}"
        return _row("match", layer, head, name, str(TOKEN_IDENTITY), reading, predicted)

    # -- read-outs ----------------------------------------------------------------------------

    def output_rows(self) -> Iterator[Coordinate]:
        paths = [DIRECT, *(Path((h,)) for h in self.weights.heads)]
        for layer, head in self.weights.heads:
            paths += [Path((earlier, (layer, head))) for earlier in self._earlier(layer)]
        for path in paths:
            yield from self._read_out(path)

    def _read_out(self, path: Path) -> Iterator[Coordinate]:
        layer, head = path.heads[-1] if path.heads else (None, None)
        A = self.norm[-1] * self.carried(path)
        for unit, partner in (("copy", None), ("associate", self.relation)):
            selection = "identity" if unit == "copy" else "association"
            reading, top = ZERO, 0.0
            if self.weights.same_vocabulary:
                B = self.weights.W_U.T[self.tokens]
                reading = read_selection(A, B, partner)
                top = top_share(A, B, partner, self.asked)[0]
            yield _row(unit, layer, head, str(path), selection, reading, top)


def top_share(
    A: Float[Tensor, "tokens rank"],
    B: Float[Tensor, "tokens rank"],
    partner: Int[Tensor, " tokens"] | None,
    asked: Int[Tensor, " asked"],
) -> tuple[float, float]:
    """Shares of the asked tokens whose selected entry of S = A B^T is the row's largest, and its
    smallest, after centring over tokens (a constant added to all rows scores 0). Ties score 0."""
    to = asked if partner is None else partner[asked]
    asked, to = asked[to >= 0], to[to >= 0]
    if len(asked) == 0:
        return 0.0, 0.0
    S = (A[asked] - A.mean(0)) @ B.T
    own = S.gather(1, to[:, None])[:, 0]
    rest = S.scatter(1, to[:, None], float("-inf"))
    top = own > rest.amax(1) + 1e-9 * S.abs().amax(1)
    rest = S.scatter(1, to[:, None], float("inf"))
    bottom = own < rest.amin(1) - 1e-9 * S.abs().amax(1)
    return float(top.double().mean()), float(bottom.double().mean())


def token_keys(
    weights: ModelWeights,
    layer: int,
    head: int,
    rows: Float[Tensor, "tokens d_model"],
    factor: Tensor | None,
) -> Float[Tensor, "tokens d_head"]:
    """Keys of token rows, position left out; `factor` of a query-key norm."""
    keys = rows @ weights.W_K[layer, head]
    norm = weights.attention[layer].qk_norm
    return keys if norm is None or factor is None else keys * factor[0, 0] * norm.key_gain[head]


def token_queries(
    weights: ModelWeights,
    layer: int,
    head: int,
    rows: Float[Tensor, "tokens d_model"],
    factor: Tensor | None,
    context: int,
) -> Float[Tensor, "tokens d_head"]:
    """Queries of token rows, divided by the scale; rotations averaged over the distances of the
    context, so that only the token tells."""
    kind = weights.attention[layer]
    queries = rows @ weights.W_Q[layer, head] / weights.scale[layer]
    if kind.qk_norm is not None and factor is not None:
        queries = queries * factor[0, 0] * kind.qk_norm.query_gain[head]
    if kind.rotary is None:
        return queries
    return kind.rotary.mean_turn(queries, torch.arange(1, max(2, context)))


def draw_others(
    asked: Int[Tensor, " asked"], tokens: int, count: int, *, generator: torch.Generator
) -> Int[Tensor, "asked count"]:
    """Competitors for every asked token: others of `tokens`, drawn with replacement."""
    others = torch.randint(max(1, tokens - 1), (len(asked), count), generator=generator)
    others += (others >= asked[:, None]).long()
    return others.clamp_(max=tokens - 1)


def match_share(
    A: Float[Tensor, "tokens rank"],
    B: Float[Tensor, "tokens rank"],
    asked: Int[Tensor, " asked"],
    others: Int[Tensor, "asked count"],
) -> float:
    """Mean softmax weight that the scores A B^T give a token's own key among its competitors'."""
    S = A[asked] @ B.T  # one product: gathering the competitors' keys takes longer
    own, rest = S.gather(1, asked[:, None]), S.gather(1, others)
    return float(torch.cat([own, rest], 1).softmax(1)[:, 0].mean())


def _row(
    unit: str,
    layer: int | None,
    head: int | None,
    path: str,
    selection: str,
    reading: Reading,
    predicted: float,
) -> Coordinate:
    return Coordinate(
        unit, layer, head, path, selection, reading.effect, reading.cosine, reading.z, predicted
    )
