"""Edges ablated one port at a time: what an induction head attends to, and what the output says,
without what the named sources write there.

The model is run once. From its own residual stream, what a source writes is replaced by its mean
over contexts, place by place, in what one reader sees, and that reader is computed again by the
verified reading of its weights; nothing else changes. So a row tells what the edge itself carries,
which ablating the whole head does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex
from imir_detect.circuits.core import Circuit
from imir_detect.coordinates.pathsum import OUTPUT, name_of
from imir_detect.linalg import DTYPE
from imir_detect.verification import DRAWS, Asked, interval, mean_and_error
from imir_detect.weights.forward import (
    SIDES,
    Side,
    attend,
    finish,
    normed,
    patterns,
    post_factor,
    project,
    qk_factor,
    values,
)
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.run import run_residuals

CONTEXTS = 8


def check_edges(
    model: Any,
    weights: ModelWeights,
    asked: Asked,
    circuit: Circuit,
    *,
    generator: torch.Generator,
    draws: int = DRAWS,
) -> dict[str, Any]:
    """What the circuit's edges carry, on the first `CONTEXTS` contexts, in one forward pass.

    `edges`: a row for each head that writes to the output and each port, "Q" or "K", that earlier
    heads feed (mean attention to the token after the earlier copy), and one for the direct edges to
    the output (share of right answers). Each with the model as it is, with the named sources
    ablated, and with as many random other heads (None where there are not as many); `intervals` at
    95 %, as in `check_heads`.
    """
    few = asked.row < CONTEXTS
    tokens = asked.tokens[:CONTEXTS]
    residuals = run_residuals(model, weights, tokens)
    seen = _Seen(weights, residuals, asked.row[few], asked.place[few], asked.wanted[few], tokens)
    rows = []
    writers = [
        e.source for e in circuit.edges if e.target == OUTPUT and not isinstance(e.source, str)
    ]
    for target in writers:
        for side in SIDES:
            sources = [
                e.source
                for e in circuit.edges
                if (e.target, e.port) == (target, side) and not isinstance(e.source, str)
            ]
            if sources:
                earlier = [h for h in weights.heads if h[0] < target[0] and h not in sources]
                rows.append(
                    _row(
                        f"{_said(sources)} -{side}-> {name_of(target)}",
                        "attention to the token after the earlier copy",
                        lambda heads, target=target, side=side: seen.attention(target, side, heads),
                        sources,
                        earlier,
                        draws,
                        generator,
                    )
                )
    if writers and weights.same_vocabulary:
        rows.append(
            _row(
                f"{_said(writers)} -out-> output",
                "right answers",
                seen.right,
                writers,
                [h for h in weights.heads if h not in writers],
                draws,
                generator,
            )
        )
    return {"edges": rows, "forward_passes": 1}


def _row(
    edge: str,
    measures: str,
    measure: Any,
    sources: Sequence[HeadIndex],
    others: Sequence[HeadIndex],
    draws: int,
    generator: torch.Generator,
) -> dict[str, Any]:
    found = {"intact": measure([])[None], "ablated": measure(sources)[None]}
    if len(others) >= len(sources):
        order = [torch.randperm(len(others), generator=generator) for _ in range(draws)]
        found["random"] = torch.stack(
            [measure([others[int(i)] for i in o[: len(sources)]]) for o in order]
        )
    row: dict[str, Any] = {"edge": edge, "measures": measures, "random": None, "intervals": {}}
    for name, shares in found.items():
        mean, error = mean_and_error(shares)
        row[name] = mean
        count = len(shares) if len(shares) > 1 else shares.shape[1]
        low, high = interval(mean, error, count)
        row["intervals"][name] = [max(0.0, low), min(1.0, high)]
    return row


class _Seen:
    """The model's own residual stream on some contexts, and what is read of it."""

    def __init__(
        self,
        weights: ModelWeights,
        residuals: list[Float[Tensor, "n pos d_model"]],
        row: Tensor,
        place: Tensor,
        wanted: Tensor,
        tokens: Tensor,
    ) -> None:
        self.weights, self.residuals = weights, residuals
        self.row, self.place, self.wanted = row, place, wanted
        # The token wanted stood last right after the earlier copy.
        before = torch.arange(tokens.shape[1]) < place[:, None]
        found = (tokens[row] == wanted[:, None]) & before
        self.key = (found * torch.arange(tokens.shape[1])).amax(1)
        self.written: dict[int, Float[Tensor, "n head pos d_model"]] = {}

    def attention(
        self, target: HeadIndex, side: Side, without: Sequence[HeadIndex]
    ) -> Float[Tensor, " n"]:
        """Mean attention of a head to the wanted token, a context, where one side of its score does
        not see these heads."""
        w, (layer, head) = self.weights, target
        finished: list[Tensor] = []
        for each in SIDES:
            heads = without if each == side else []
            x = normed(w, layer, self.residuals[layer] - self._deviation(heads))
            rows = project(w, layer, each, x)
            finished.append(finish(w, layer, each, rows, qk_factor(w, layer, rows)))
        pattern = attend(w, layer, finished[0], finished[1])[:, head]
        return self._by_context(pattern[self.row, self.place, self.key])

    def right(self, without: Sequence[HeadIndex]) -> Float[Tensor, " n"]:
        """Share of right answers, a context, where the output does not see these heads."""
        w = self.weights
        x = normed(w, w.n_layers, self.residuals[-1] - self._deviation(without))
        logits = x[self.row, self.place] @ w.W_U + w.b_U
        return self._by_context((logits.argmax(-1) == self.wanted).to(DTYPE))

    def _deviation(self, heads: Sequence[HeadIndex]) -> Tensor:
        """What these heads write, less its mean over contexts."""
        total = torch.zeros_like(self.residuals[0])
        for layer, head in heads:
            own = self._written(layer)[:, head]
            total = total + own - own.mean(0)
        return total

    def _written(self, layer: int) -> Float[Tensor, "n head pos d_model"]:
        if layer not in self.written:
            w = self.weights
            x = normed(w, layer, self.residuals[layer])
            pattern, _, _ = patterns(w, layer, x)
            out = torch.einsum("nhpk,hkd->nhpd", pattern @ values(w, layer, x), w.W_O[layer])
            factor = post_factor(w, layer, out.sum(1) + w.b_O[layer])
            self.written[layer] = out if factor is None else out * factor[:, None]
        return self.written[layer]

    def _by_context(self, values: Tensor) -> Float[Tensor, " n"]:
        total = torch.zeros(len(self.residuals[0]), dtype=DTYPE).index_add_(0, self.row, values)
        return total / torch.bincount(self.row, minlength=len(total)).clamp(min=1)


def _said(heads: Sequence[HeadIndex]) -> str:
    return ", ".join(name_of(h) for h in heads)
