"""The coordinate model: the paper's winning lottery ticket, in closed form at the last position.

Two layers; H heads in the first. With consecutive positions, head h of layer 0 gives the position
before it the score alpha_h and all others 0; layer 1 gives position j the score
sum_h beta_h (share of head h's attention at j on tokens equal to the query); the output is gamma on
the tokens attended to and delta on R(query):

    logits = gamma sum_j a_j e(token_j) + delta e(R(query)).

This is the idealised model with separated maps and orthonormal embeddings at these coordinates (a
test compares them), at a cost linear in the sequence length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.frame.basis import Coefficients, Frame
from imir_detect.frame.names import ASSOCIATION, SHIFT_1, TOKEN_IDENTITY, Selection
from imir_detect.linalg import DTYPE
from imir_detect.tasks.base import Batch

NAMES = ("alpha", "beta", "gamma", "delta")


@dataclass(frozen=True)
class Reduced:
    """The four coordinates. alpha and beta (head,), gamma and delta scalars.

    >>> Reduced.of(0.1, 0.1, 0.1).alpha
    tensor([0.1000], dtype=torch.float64)
    """

    alpha: Float[Tensor, " head"]
    beta: Float[Tensor, " head"]
    gamma: Float[Tensor, ""]
    delta: Float[Tensor, ""]

    @classmethod
    def of(
        cls,
        alpha: float | Tensor = 0.0,
        beta: float | Tensor = 0.0,
        gamma: float = 0.0,
        delta: float = 0.0,
    ) -> Reduced:
        """From numbers; alpha and beta may be one number per head."""
        vector = [torch.as_tensor(v, dtype=DTYPE).reshape(-1) for v in (alpha, beta)]
        scalar = [torch.as_tensor(v, dtype=DTYPE) for v in (gamma, delta)]
        return cls(*vector, *scalar)

    def flat(self) -> Float[Tensor, " coordinate"]:
        """alpha of every head, beta of every head, gamma, delta."""
        return torch.cat([self.alpha, self.beta, self.gamma[None], self.delta[None]])

    @classmethod
    def from_flat(cls, flat: Float[Tensor, " coordinate"]) -> Reduced:
        heads = (len(flat) - 2) // 2
        return cls(flat[:heads], flat[heads : 2 * heads], flat[-2], flat[-1])

    def first_attention(
        self, matches: Float[Tensor, "batch pos"]
    ) -> Float[Tensor, "head batch pos"]:
        """Share of layer 0's attention, at every position, on positions where `matches` is 1."""
        steps = matches.shape[1]
        before = torch.arange(steps, dtype=matches.dtype)
        boost = self.alpha.exp()[:, None].expand(-1, steps)
        boost = torch.where(before > 0, boost, 1.0)  # nothing stands before the first position
        earlier = torch.nn.functional.pad(matches[:, :-1], (1, 0))
        summed = matches.cumsum(1)
        total = torch.where(before > 0, before, 0.0) + boost
        return (summed + (boost - 1)[:, None] * earlier) / total[:, None]

    def attention(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos"]:
        """Layer 1's attention from the last position."""
        matches = (tokens == tokens[:, -1:]).to(self.alpha.dtype)
        scores = torch.einsum("h,hbj->bj", self.beta, self.first_attention(matches))
        return scores.softmax(-1)

    def logits(
        self, tokens: Int[Tensor, "batch pos"], relation: Int[Tensor, " vocab"]
    ) -> Float[Tensor, "batch vocab"]:
        """Logits at the last position."""
        found = self.alpha.new_zeros(len(tokens), len(relation))
        found = found.scatter_add(1, tokens, self.gamma * self.attention(tokens))
        partner = relation[tokens[:, -1:]]
        named = (partner >= 0).to(found.dtype)
        return found.scatter_add(1, partner.clamp(min=0), self.delta * named)


def gradient(point: Reduced, batch: Batch, relation: Int[Tensor, " vocab"]) -> Tensor:
    """Gradient of the mean cross-entropy (nats) in the order of `Reduced.flat`."""
    flat = point.flat().detach().requires_grad_()
    logits = Reduced.from_flat(flat).logits(batch.tokens, relation)
    loss = torch.nn.functional.cross_entropy(logits, batch.targets[:, -1])
    (found,) = torch.autograd.grad(loss, flat)
    return found


def norms(frame: Frame, *, shift: Selection = SHIFT_1) -> Mapping[str, float]:
    """Frobenius norm of each coordinate's direction: {"alpha", "beta", "gamma", "delta"}.

    Steepest descent in weights moves a coordinate by its gradient over the squared norm. `shift`:
    what stands for one back, on a ring `frame.relations.cycle(1)`.
    """
    x = frame.embedding
    chosen = (shift, TOKEN_IDENTITY, TOKEN_IDENTITY, ASSOCIATION)
    return {
        name: float((x.T @ frame.selections[s] @ x).norm()) if s in frame.selections else 0.0
        for name, s in zip(NAMES, chosen, strict=True)
    }


def coefficients(
    point: Reduced, frame: Frame, zero: Coefficients, *, shift: Selection = SHIFT_1
) -> Coefficients:
    """The four coordinates as coefficients of a two-layer frame, all others as in `zero`.

    Layer 1's head 0 matches, with the key read through each head of layer 0, and the output copies
    through that head; beta_h stands on the path of head h. `shift`: as in `norms`.
    """
    names = list(frame.selections)
    heads = len(point.alpha)
    first, second = (a.clone() for a in zero.attention)
    output = zero.output.clone()
    first[:heads, names.index(shift), 0, 0] = point.alpha.to(first.dtype)
    second[0, names.index(TOKEN_IDENTITY), 0, 1 : heads + 1] = point.beta.to(second.dtype)
    copying = frame.n_heads + 1  # the path through layer 1's head 0 alone
    output[frame.output_selections.index(TOKEN_IDENTITY), copying] = point.gamma.to(output.dtype)
    if ASSOCIATION in frame.output_selections:
        row = frame.output_selections.index(ASSOCIATION)
        output[row, 0] = point.delta.to(output.dtype)
    return Coefficients((first, second), output)
