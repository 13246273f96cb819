"""The basis of the frame in weight space: directions, projection onto their span, and back.

A path p takes an embedding row e to e A_p; reading it back uses the pseudo-inverse A_p^+. With
X the stacked token and position embeddings (m rows), `read_p` = X (A_p^+)^T, and the direction of
selection S between query path q and key path k is read_q^T S read_k: a matrix W for which
(x_i W x_j^T) is S[i, j] when x_i carries row i along q and x_j row j along k. An output direction
is read_p^T S X restricted to tokens, for logits = x Wbar E^T. (The paper, sections 2 and 3; the
pseudo-inverse where maps are not orthogonal is our choice.)

Separated value maps (`values` None) give every path a block of its own: layer l reads width
m0 * (H + 1)^l, path p in block p, where p's digits in base H + 1 say which head (0: none) of each
layer is on it. Then directions of different paths are orthogonal and projection is one small
solve, however deep the model is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.errors import FrameMismatchError, InvalidArgumentError
from imir_detect.frame.names import Direction, Path, Selection
from imir_detect.linalg import DTYPE, rank_tolerance

LARGEST_DESIGN = 2**27  # numbers in a dense design matrix (1 GiB)


@lru_cache(maxsize=64)
def paths(n_heads: int, layer: int) -> tuple[Path, ...]:
    """All (H + 1)^layer paths into `layer`, in the order of their digits.

    >>> [str(p) for p in paths(1, 2)]
    ['direct', 'L0H0', 'L1H0', 'L0H0>L1H0']
    """
    found: tuple[Path, ...] = (Path(),)
    for earlier in range(layer):
        longer = [p.then((earlier, head)) for head in range(n_heads) for p in found]
        found = (*found, *longer)
    return found


@dataclass(frozen=True)
class Coefficients:
    """A model's number on every direction of a frame.

    `attention[l]` (head, selection, query path, key path) for every layer; `output` (output
    selection, path).
    """

    attention: tuple[Float[Tensor, "head selection path path"], ...]
    output: Float[Tensor, "selection path"]

    def flat(self) -> Float[Tensor, " direction"]:
        """All numbers in the order of `Frame.directions`."""
        return torch.cat([*(a.flatten() for a in self.attention), self.output.flatten()])

    def like(self, flat: Float[Tensor, " direction"]) -> Coefficients:
        """The same shapes, filled from a flat vector."""
        shapes = [a.shape for a in self.attention] + [self.output.shape]
        parts = torch.split(flat, [s.numel() for s in shapes])
        *attention, output = (part.reshape(s) for part, s in zip(parts, shapes, strict=True))
        return Coefficients(tuple(attention), output)


@dataclass(frozen=True)
class Frame:
    """Embeddings, value maps and selections: everything that names a basis.

    - `embedding` (m, d): token rows, then position rows. `n_tokens`: how many are tokens.
    - `selections`: {Selection: (m, m)}, from `imir_detect.frame.relations`.
    - `values` (layer, head, d, d), or None for separated maps (see the module).
    """

    embedding: Float[Tensor, "row d_model"]
    n_tokens: int
    n_layers: int
    n_heads: int
    selections: dict[Selection, Float[Tensor, "row row"]]
    values: Float[Tensor, "layer head d_model d_model"] | None = field(default=None)

    def __post_init__(self) -> None:
        rows = len(self.embedding)
        for selection, matrix in self.selections.items():
            if matrix.shape != (rows, rows):
                raise FrameMismatchError(
                    f"the selection {selection!s} does not fit the embeddings",
                    got=str(tuple(matrix.shape)),
                    wanted=str((rows, rows)),
                    todo="build selections for this vocabulary and these positions",
                )

    @property
    def separated(self) -> bool:
        return self.values is None

    @cached_property
    def stack(self) -> Float[Tensor, "selection row row"]:
        """All selections, in order."""
        return torch.stack(list(self.selections.values())).to(self.embedding.dtype)

    @cached_property
    def output_selections(self) -> tuple[Selection, ...]:
        """Selections whose columns are tokens: those that can name an answer."""
        n = self.n_tokens
        return tuple(s for s, matrix in self.selections.items() if not matrix[:, n:].any())

    @cached_property
    def output_stack(self) -> Float[Tensor, "selection row row"]:
        chosen = [self.selections[s] for s in self.output_selections]
        return torch.stack(chosen).to(self.embedding.dtype)

    def paths(self, layer: int) -> tuple[Path, ...]:
        return paths(self.n_heads, layer)

    def width(self, layer: int) -> int:
        """Width of the residual stream that `layer` reads (the last: n_layers, the output)."""
        blocks = (self.n_heads + 1) ** layer if self.separated else 1
        return self.embedding.shape[1] * blocks

    def directions(self) -> Iterator[Direction]:
        """Every direction in the order of `Coefficients.flat`."""
        for layer in range(self.n_layers):
            for head in range(self.n_heads):
                for selection in self.selections:
                    for q in self.paths(layer):
                        for k in self.paths(layer):
                            yield Direction((layer, head), q, selection, k)
        for selection in self.output_selections:
            for path in self.paths(self.n_layers):
                yield Direction(None, path, selection)

    def reads(self, layer: int) -> Float[Tensor, "path row width"]:
        """`read_p` of every path into `layer`."""
        x = self.embedding
        if self.values is None:
            blocks = len(self.paths(layer))
            found = x.new_zeros(blocks, *x.shape[:1], blocks, x.shape[1])
            for p in range(blocks):
                found[p, :, p] = x
            return found.flatten(2)
        rows = []
        for path in self.paths(layer):
            action = torch.eye(x.shape[1], dtype=x.dtype)
            for step in path.heads:
                action = action @ self.values[step]
            rows.append(x @ torch.linalg.pinv(action).T)
        return torch.stack(rows)

    def matrices(self, layer: int) -> Float[Tensor, "selection path path width width"]:
        """All directions of one head of `layer`, dense; for small frames and tests."""
        reads = self.reads(layer)
        return torch.einsum("pma,smn,qnb->spqab", reads, self.stack, reads)

    def output_matrices(self) -> Float[Tensor, "selection path width d_model"]:
        """All output directions, dense."""
        reads = self.reads(self.n_layers)
        return torch.einsum("pma,smn,nb->spab", reads, self.output_stack, self.embedding)

    # -- weights to coefficients and back ----------------------------------------------------

    def project(
        self, attention: tuple[Tensor, ...], output: Float[Tensor, "width d_model"]
    ) -> Coefficients:
        """Least-squares coefficients of `attention[l]` (head, width, width) and `output`."""
        self._check(attention, output)
        found = []
        for layer, weights in enumerate(attention):
            reads = self.reads(layer)
            if self.separated:
                cores = self._blocks(weights, weights.shape[-1])  # (head, q, k, d, d)
                found.append(self._solve_cores(cores, self.stack).permute(0, 3, 1, 2))
            else:
                found.append(self._solve_dense(layer, reads, weights))
        if self.separated:
            cores = output.reshape(len(self.paths(self.n_layers)), -1, output.shape[1])
            out = self._solve_cores(cores, self.output_stack).T
        else:
            design = self.output_matrices()
            out = _least_squares(design.flatten(2).flatten(0, 1), output.flatten()[None])[0]
            out = out.reshape(design.shape[:2])
        return Coefficients(tuple(found), out)

    def rebuild(self, coefficients: Coefficients) -> tuple[tuple[Tensor, ...], Tensor]:
        """Weights with the given coefficients: (attention, output). Differentiable."""
        attention = []
        x, cores = self.embedding, self.stack
        for layer, c in enumerate(coefficients.attention):
            mixed = torch.einsum("hspq,smn->hpqmn", c.to(x.dtype), cores)
            if self.separated:
                blocks = torch.einsum("ma,hpqmn,nb->hpaqb", x, mixed, x)
                attention.append(blocks.flatten(3).flatten(1, 2))
            else:
                reads = self.reads(layer)
                attention.append(torch.einsum("pma,hpqmn,qnb->hab", reads, mixed, reads))
        out = torch.einsum("sp,smn->pmn", coefficients.output.to(x.dtype), self.output_stack)
        if self.separated:
            output = torch.einsum("ma,pmn,nb->pab", x, out, x).flatten(0, 1)
        else:
            output = torch.einsum("pma,pmn,nb->ab", self.reads(self.n_layers), out, x)
        return tuple(attention), output

    def outside(
        self, attention: tuple[Tensor, ...], output: Float[Tensor, "width d_model"]
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """The part of the weights (or of a gradient) that the span does not hold."""
        inside, inside_output = self.rebuild(self.project(attention, output))
        rest = tuple(w - v for w, v in zip(attention, inside, strict=True))
        return rest, output - inside_output

    def rank(self, layer: int) -> tuple[int, int, float]:
        """(directions, rank, condition number) of one head's basis at `layer`; dense.

        The condition number is that of the part with rank: largest over smallest singular value
        above `linalg.rank_tolerance`.
        """
        dense = self.output_matrices() if layer == self.n_layers else self.matrices(layer)
        flat = dense.flatten(-2).flatten(0, -2)
        values = torch.linalg.svdvals(flat)
        kept = values[values > rank_tolerance(flat) * values[0]]
        return len(flat), len(kept), float(kept[0] / kept[-1])

    # -- helpers -----------------------------------------------------------------------------

    def _blocks(self, weights: Tensor, width: int) -> Tensor:
        d = self.embedding.shape[1]
        n = width // d
        return weights.reshape(-1, n, d, n, d).transpose(2, 3)

    def _solve_cores(self, cores: Tensor, stack: Tensor) -> Tensor:
        """Coefficients (..., selection) of blocks (..., d, d) on X^T S X."""
        x = self.embedding
        design = torch.einsum("ma,smn,nb->sab", x, stack, x).flatten(1)
        found = _least_squares(design, cores.reshape(-1, design.shape[1]))
        return found.reshape(*cores.shape[:-2], len(stack))

    def _solve_dense(self, layer: int, reads: Tensor, weights: Tensor) -> Tensor:
        n = len(self.selections) * len(reads) ** 2
        if n * weights[0].numel() > LARGEST_DESIGN:
            raise InvalidArgumentError(
                f"the basis of layer {layer} is too large to project on",
                got=f"{n} directions of {weights[0].numel()} numbers",
                wanted=f"at most {LARGEST_DESIGN} numbers",
                todo="use separated value maps or fewer layers",
            )
        design = self.matrices(layer).flatten(3)
        found = _least_squares(design.flatten(0, 2), weights.flatten(1))
        return found.reshape(len(weights), *design.shape[:3])

    def _check(self, attention: tuple[Tensor, ...], output: Tensor) -> None:
        got = [tuple(w.shape) for w in (*attention, output)]
        wanted = [(self.n_heads, w, w) for w in map(self.width, range(self.n_layers))]
        wanted.append((self.width(self.n_layers), self.embedding.shape[1]))  # type: ignore[arg-type]
        if got != wanted:
            raise FrameMismatchError(
                "these weights do not belong to this frame",
                got=str(got),
                wanted=str(wanted),
                todo="project a model on the frame that was built for it",
            )


def _least_squares(design: Tensor, rows: Tensor) -> Tensor:
    """Smallest c with c @ design nearest to rows; design (directions, numbers), rank may lack.

    What counts as zero follows the design's own precision: centred single-precision positions sum
    to 1e-8, not to nothing, and directions that cancel up to that say nothing either.
    """
    left, values, right = torch.linalg.svd(design.to(DTYPE), full_matrices=False)
    keep = values > rank_tolerance(design) * values[0]
    inverse = torch.where(keep, 1 / values.clamp(min=torch.finfo(DTYPE).tiny), 0.0)
    return ((rows.to(DTYPE) @ right.T) * inverse @ left.T).to(rows.dtype)
