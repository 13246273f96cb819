"""The idealised transformer of the paper, section 2: attention only, one matrix per head.

    x^(l+1) = x^(l) + sum_h softmax(causal(x W^(l,h) x^T)) x V^(l,h),   logits = x^(L) Wbar E^T

Embeddings E (tokens) and P (positions) have jointly orthonormal rows, centred on request; the
value maps V are fixed. Two kinds of value maps:

- "separated" (default): every path writes to a block of its own. The stream grows by concatenation,
  layer l reads m (H + 1)^l numbers, and only those are stored. Theorem 1 holds exactly.
- "random": random orthogonal d x d. Paths overlap by about (V + N) / d, so the theorems hold
  approximately; take d >= 4 (V + N).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.basis import Coefficients, Frame
from imir_detect.frame.names import Selection
from imir_detect.frame.relations import centre
from imir_detect.linalg import DTYPE
from imir_detect.weights.model import ModelWeights

Values = Literal["separated", "random"]
Centring = Literal["none", "global", "class"]


@dataclass(frozen=True)
class IdealisedModel:
    """Weights of the idealised transformer. Functions return new models; nothing is changed.

    - `embedding` (V + N, d): token rows, then position rows; `n_tokens` = V.
    - `values` (layer, head, d, d), or None when separated.
    - `attention[l]` (head, width, width) and `output` (width, d): the trained weights, width as
      in `Frame.width`. With separated maps the columns of Wbar that E^T does not read are left
      out: their gradient is zero.
    """

    embedding: Float[Tensor, "row d_model"]
    n_tokens: int
    values: Float[Tensor, "layer head d_model d_model"] | None
    attention: tuple[Float[Tensor, "head width width"], ...]
    output: Float[Tensor, "width d_model"]

    @property
    def n_layers(self) -> int:
        return len(self.attention)

    @property
    def n_heads(self) -> int:
        return self.attention[0].shape[0]

    @property
    def n_positions(self) -> int:
        return len(self.embedding) - self.n_tokens

    def frame(self, selections: dict[Selection, Float[Tensor, "row row"]]) -> Frame:
        """The frame of this model with the given selections."""
        return Frame(
            self.embedding, self.n_tokens, self.n_layers, self.n_heads, selections, self.values
        )

    def with_weights(self, attention: tuple[Tensor, ...], output: Tensor) -> IdealisedModel:
        """The same model with other trained weights."""
        return replace(self, attention=attention, output=output)

    def parameters(self) -> tuple[Tensor, ...]:
        """The trained tensors: attention of every layer, then the output matrix."""
        return (*self.attention, self.output)

    def parameters_apart(self) -> tuple[tuple[Tensor, ...], Tensor]:
        """Attention of every layer and the output matrix, as `Frame.project` takes them."""
        return self.attention, self.output

    def embed(
        self, tokens: Int[Tensor, "batch pos"], positions: Int[Tensor, "batch pos"] | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        """Token plus position rows; positions default to 0, 1, 2, ..."""
        places = torch.arange(tokens.shape[1])[None] if positions is None else positions
        if int(places.max()) >= self.n_positions or int(tokens.max()) >= self.n_tokens:
            raise InvalidArgumentError(
                "sequences do not fit the model",
                got=f"token {int(tokens.max())}, position {int(places.max())}",
                wanted=f"tokens below {self.n_tokens}, positions below {self.n_positions}",
                todo="build the model from the task's vocab_size and n_positions",
            )
        return self.embedding[tokens] + self.embedding[self.n_tokens + places]

    def logits(
        self,
        tokens: Int[Tensor, "batch pos"],
        positions: Int[Tensor, "batch pos"] | None = None,
        *,
        everywhere: bool = False,
    ) -> Float[Tensor, "batch *pos vocab"]:
        """Logits at the last position, or with `everywhere` at all of them."""
        x = self.embed(tokens, positions)
        for layer in range(self.n_layers):
            x = self._attend(x, layer, last=not everywhere and layer == self.n_layers - 1)
        found = x @ self.output @ self.embedding[: self.n_tokens].T
        return found if everywhere else found[:, -1]

    def pattern(
        self, tokens: Tensor, positions: Tensor | None = None, *, layer: int
    ) -> Float[Tensor, "batch head pos pos"]:
        """Attention of `layer`."""
        x = self.embed(tokens, positions)
        for earlier in range(layer):
            x = self._attend(x, earlier, last=False)
        return self._pattern(x, x, layer)

    def _attend(self, x: Tensor, layer: int, *, last: bool) -> Tensor:
        queries = x[:, -1:] if last else x
        mixed = self._pattern(queries, x, layer) @ x[:, None]  # (batch, head, pos, width)
        if self.values is None:
            return torch.cat([queries, mixed.transpose(1, 2).flatten(2)], dim=-1)
        return queries + torch.einsum("bhia,hac->bic", mixed, self.values[layer])

    def _pattern(self, queries: Tensor, x: Tensor, layer: int) -> Tensor:
        scores = (queries[:, None] @ self.attention[layer]) @ x[:, None].transpose(-1, -2)
        n, m = scores.shape[-2:]
        later = torch.ones(n, m, dtype=torch.bool).triu(1 + m - n)
        return scores.masked_fill(later, float("-inf")).softmax(-1)


def idealised(
    n_tokens: int,
    n_positions: int,
    n_layers: int,
    n_heads: int = 1,
    *,
    values: Values = "separated",
    width: int | None = None,
    relation: Int[Tensor, " vocab"] | None = None,
    centring: Centring = "none",
    scale: float = 0.0,
    seed: int = 0,
    dtype: torch.dtype = DTYPE,
) -> IdealisedModel:
    """A fresh idealised model: trained weights N(0, scale^2), zero by default.

    `width`: of one embedding row, default V + N (separated) or 4 (V + N) (random). `centring`:
    "class" removes each token class's mean (classes from `relation`; all one class without) and
    the positions' mean, "global" one mean for all tokens. Embeddings are the standard basis when
    separated, a random rotation of it otherwise.

    >>> idealised(4, 3, 2).output.shape
    torch.Size([28, 7])
    """
    rows = n_tokens + n_positions
    width = width or (rows if values == "separated" else 4 * rows)
    if width < rows or n_layers < 1 or n_heads < 1:
        raise InvalidArgumentError(
            "jointly orthonormal embeddings need room, and a model a head",
            got=f"width={width}, n_layers={n_layers}, n_heads={n_heads}",
            wanted=f"width of at least {rows}, one layer, one head",
            todo="raise width, or drop tokens or positions",
        )
    g = torch.Generator().manual_seed(seed)
    embedding = torch.eye(rows, width, dtype=DTYPE)
    maps = None
    if values == "random":
        embedding = embedding @ random_orthogonal(width, generator=g)
        drawn = [random_orthogonal(width, generator=g) for _ in range(n_layers * n_heads)]
        maps = torch.stack(drawn).reshape(n_layers, n_heads, width, width).to(dtype)
    if centring != "none":
        r = torch.full((n_tokens,), -1) if relation is None else relation
        embedding = centre(r, n_positions, by_class=centring == "class") @ embedding
    blocks = (n_heads + 1) if values == "separated" else 1

    def draw(*shape: int) -> Tensor:
        return scale * torch.randn(*shape, generator=g, dtype=DTYPE).to(dtype)

    widths = [width * blocks**layer for layer in range(n_layers + 1)]
    attention = tuple(draw(n_heads, w, w) for w in widths[:-1])
    return IdealisedModel(embedding.to(dtype), n_tokens, maps, attention, draw(widths[-1], width))


def from_coefficients(
    model: IdealisedModel, frame: Frame, coefficients: Coefficients
) -> IdealisedModel:
    """`model` with the weights that `coefficients` name in `frame`."""
    attention, output = frame.rebuild(coefficients)
    return model.with_weights(attention, output)


def random_orthogonal(size: int, *, generator: torch.Generator) -> Float[Tensor, "size size"]:
    """A uniform (Haar) random orthogonal matrix: QR of a Gaussian, signs mended."""
    q, r = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=DTYPE))
    return q * r.diagonal().sign()


def swap_values(model: IdealisedModel) -> Float[Tensor, "layer head d_model d_model"]:
    """Separated value maps written out as orthogonal d x d matrices, d = m (H + 1)^L.

    Head h of layer l swaps digit 0 with digit h + 1 at place l of a block's number: a block
    permutation. No stream that reaches layer l has that digit set, so nothing collides.
    """
    if model.values is not None:
        return model.values
    base, m = model.n_heads + 1, model.embedding.shape[1]
    blocks = base**model.n_layers
    eye = torch.eye(m, dtype=model.embedding.dtype)
    maps = []
    for layer in range(model.n_layers):
        for head in range(model.n_heads):
            number = torch.arange(blocks)
            digit = number // base**layer % base
            turned = torch.where(digit == 0, head + 1, torch.where(digit == head + 1, 0, digit))
            swap = torch.eye(blocks, dtype=eye.dtype)[number + (turned - digit) * base**layer]
            maps.append(torch.kron(swap, eye))
    return torch.stack(maps).reshape(model.n_layers, model.n_heads, blocks * m, blocks * m)


def to_weights(model: IdealisedModel) -> ModelWeights:
    """The same function as plain transformer weights: W_Q = W, W_K = I, scale 1, no norm.

    Separated maps are written out (`swap_values`) and every trained matrix is padded with zeros to
    d = m (H + 1)^L, so memory grows as d^2: for small models.
    """
    layers, heads = model.n_layers, model.n_heads
    maps = swap_values(model).to(DTYPE)
    d, m = maps.shape[-1], model.embedding.shape[1]
    rows = torch.zeros(len(model.embedding), d, dtype=DTYPE)
    rows[:, :m] = model.embedding.detach()
    queries = torch.zeros(layers, heads, d, d, dtype=DTYPE)
    for layer, w in enumerate(model.attention):
        queries[layer, :, : w.shape[1], : w.shape[1]] = w.detach()
    eye = torch.eye(d, dtype=DTYPE).expand(layers, heads, d, d).contiguous()
    unembed = model.output.detach() @ model.embedding[: model.n_tokens].detach().T
    zero = torch.zeros(layers, heads, d, dtype=DTYPE)
    return ModelWeights(
        W_E=rows[: model.n_tokens],
        W_pos=rows[model.n_tokens :],
        W_Q=queries,
        W_K=eye,
        W_V=maps,
        W_O=eye,
        b_Q=zero,
        b_K=zero,
        b_O=torch.zeros(layers, d, dtype=DTYPE),
        W_U=unembed.to(DTYPE),
        b_U=torch.zeros(model.n_tokens, dtype=DTYPE),
        scale=torch.ones(layers, dtype=DTYPE),
        notes=("idealised model",),
    )
