"""What else than a bilinear form decides a head's attention, layer by layer.

score(i, j) = cap(q_i . k_j / scale) - slope (i - j), for j <= i and i - j < window, with q and k
the projected rows after the query-key norm and the rotation; sinks take part in the softmax and
write nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float, Int


@dataclass(frozen=True)
class Rotary:
    """Rotary positions (Su et al. 2021): pair p of a row at position t turns by t frequency[p].

    The pairs fill the first 2 len(frequency) dimensions of a head. `adjacent`: pair p is dimensions
    (2p, 2p + 1), as in GPT-J; otherwise (p, p + pairs), as in Llama. `magnitude` multiplies the
    rotated dimensions (YaRN).

    >>> quarter = Rotary(torch.tensor([torch.pi / 2], dtype=torch.float64), adjacent=True)
    >>> row = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    >>> quarter.rotate(row, torch.tensor([1])).round().abs().tolist()
    [[0.0, 1.0]]
    """

    frequency: Float[Tensor, " pair"]
    adjacent: bool
    magnitude: float = 1.0

    @property
    def width(self) -> int:
        """Dimensions of a head that turn."""
        return 2 * len(self.frequency)

    def rotate(
        self, rows: Float[Tensor, "... pos d_head"], positions: Int[Tensor, " pos"]
    ) -> Float[Tensor, "... pos d_head"]:
        """The rows at these positions, turned."""
        angle = positions.to(rows.dtype)[:, None] * self.frequency.to(rows.dtype)
        return self._turn(rows, self.magnitude * angle.cos(), self.magnitude * angle.sin())

    def mean_turn(
        self, rows: Float[Tensor, "... d_head"], distances: Int[Tensor, " distance"]
    ) -> Float[Tensor, "... d_head"]:
        """The rows turned by each of these distances, averaged: what a query is to unturned keys
        where nothing but the token is known."""
        angle = distances.to(rows.dtype)[:, None] * self.frequency.to(rows.dtype)
        square = self.magnitude**2  # of the query and of the key
        return self._turn(rows, square * angle.cos().mean(0), square * angle.sin().mean(0))

    def _turn(self, rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        turned, rest = rows[..., : self.width], rows[..., self.width :]
        if self.adjacent:
            a, b = turned[..., 0::2], turned[..., 1::2]
            turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
        else:
            a, b = turned.chunk(2, -1)
            turned = torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
        return torch.cat([turned, rest], -1) if rest.shape[-1] else turned


@dataclass(frozen=True)
class QKNorm:
    """Division of every query and key row by its root mean square, then a gain.

    `together`: the mean square runs over all heads of the layer; else over each head by itself.
    """

    query_gain: Float[Tensor, "head d_head"]
    key_gain: Float[Tensor, "head d_head"]
    together: bool
    eps: float

    def factor(self, rows: Float[Tensor, "n head pos d_head"]) -> Float[Tensor, "n head pos 1"]:
        """1 / sqrt(mean(row^2) + eps)."""
        square = rows.pow(2).mean(-1, keepdim=True)
        if self.together:
            square = square.mean(1, keepdim=True).expand_as(square)
        return (square + self.eps).rsqrt()


@dataclass(frozen=True)
class Attention:
    """How one layer turns projected rows into attention; the default is plain causal attention.

    - `rotary`, `qk_norm`: None where the layer has none.
    - `slopes` (head): ALiBi, nats a position. `sinks` (head): logit of a place that writes nothing.
    - `window`: keys further back than window - 1 are not seen. `cap`: scores pass through
      cap tanh(score / cap).
    - `query_places`, `key_places` (head, pos, d_head): what positions add to projected rows
      (shortformer).
    """

    rotary: Rotary | None = None
    qk_norm: QKNorm | None = None
    slopes: Float[Tensor, " head"] | None = None
    sinks: Float[Tensor, " head"] | None = None
    window: int | None = None
    cap: float | None = None
    query_places: Float[Tensor, "head pos d_head"] | None = None
    key_places: Float[Tensor, "head pos d_head"] | None = None

    @property
    def plain(self) -> bool:
        """Whether nothing but the bilinear form decides."""
        return not self.features()

    def features(self) -> tuple[str, ...]:
        """The field's names for what this layer has."""
        names = {
            "rotary positions": self.rotary,
            "query-key norm": self.qk_norm,
            "ALiBi": self.slopes,
            "attention sinks": self.sinks,
            "a sliding window": self.window,
            "soft-capped scores": self.cap,
            "shortformer positions": self.query_places,
        }
        return tuple(name for name, value in names.items() if value is not None)

    def bias(self, size: int) -> Float[Tensor, "head pos pos"] | Float[Tensor, "1 pos pos"]:
        """What is added to the scores: ALiBi, and -inf where a query does not see a key."""
        place = torch.arange(size)
        back = place[:, None] - place
        hidden = back < 0
        if self.window is not None:
            hidden = hidden | (back >= self.window)
        added = torch.zeros(1, size, size, dtype=torch.float64)
        if self.slopes is not None:
            added = -self.slopes[:, None, None] * back
        return added.masked_fill(hidden, float("-inf"))

    def describe(self) -> str:
        """The numbers that are no tensors, for hashes."""
        rotary, norm = self.rotary, self.qk_norm
        parts = [
            ("rotary", rotary and (rotary.adjacent, rotary.magnitude)),
            ("qk_norm", norm and (norm.together, norm.eps)),
            ("window", self.window),
            ("cap", self.cap),
        ]
        return ";".join(f"{name}={value}" for name, value in parts if value is not None)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor with a name, for hashes and checks."""
        named = {
            "frequency": None if self.rotary is None else self.rotary.frequency,
            "query_gain": None if self.qk_norm is None else self.qk_norm.query_gain,
            "key_gain": None if self.qk_norm is None else self.qk_norm.key_gain,
            "slopes": self.slopes,
            "sinks": self.sinks,
            "query_places": self.query_places,
            "key_places": self.key_places,
        }
        return {name: tensor for name, tensor in named.items() if tensor is not None}
