"""Laws of random transition matrices: how to draw rows, and their posterior mean from counts.

Rows are independent and every law is exchangeable over symbols, so a predictor of a row needs the
counts seen after that row's parent values and nothing else (apart from what roots tell).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE

TINY = 1e-300  # keeps a row of Dirichlet(0.01) draws from being 0 throughout


class RowPrior(Protocol):
    """A law of transition rows over S symbols."""

    def sample(
        self, shape: tuple[int, ...], symbols: int, *, generator: torch.Generator
    ) -> Float[Tensor, "*shape symbols"]:
        """Rows, each summing to 1, float64."""
        ...

    def posterior_mean(self, counts: Float[Tensor, "batch symbols"]) -> Float[Tensor, ...]:
        """E[row | counts of the symbols that were drawn from it]."""
        ...


@dataclass(frozen=True)
class Dirichlet:
    """Every row is Dirichlet(alpha, .., alpha); 1 is uniform on the simplex, 0.1 nearly sparse.

    >>> Dirichlet(1.0).posterior_mean(torch.tensor([[2.0, 0.0]]))
    tensor([[0.7500, 0.2500]])
    """

    alpha: float = 0.1

    def __post_init__(self) -> None:
        _check_positive("alpha", self.alpha)

    def sample(
        self, shape: tuple[int, ...], symbols: int, *, generator: torch.Generator
    ) -> Float[Tensor, "*shape symbols"]:
        rate = torch.full((*shape, symbols), self.alpha, dtype=DTYPE)
        draws = torch._standard_gamma(rate, generator=generator) + TINY
        return draws / draws.sum(-1, keepdim=True)

    def posterior_mean(self, counts: Float[Tensor, "batch symbols"]) -> Float[Tensor, ...]:
        raised = counts + self.alpha
        return raised / raised.sum(-1, keepdim=True)


@dataclass(frozen=True)
class DirichletMixture:
    """Every row picks one of `alphas` at random and is Dirichlet with it."""

    alphas: tuple[float, ...] = (0.1, 1.0)

    def __post_init__(self) -> None:
        for alpha in self.alphas:
            _check_positive("alphas", alpha)
        _check_positive("the number of alphas", len(self.alphas))

    def sample(
        self, shape: tuple[int, ...], symbols: int, *, generator: torch.Generator
    ) -> Float[Tensor, "*shape symbols"]:
        pick = torch.randint(len(self.alphas), shape, generator=generator)
        rate = torch.tensor(self.alphas, dtype=DTYPE)[pick][..., None].expand(*shape, symbols)
        draws = torch._standard_gamma(rate.contiguous(), generator=generator) + TINY
        return draws / draws.sum(-1, keepdim=True)

    def posterior_mean(self, counts: Float[Tensor, "batch symbols"]) -> Float[Tensor, ...]:
        means, evidence = [], []
        symbols, total = counts.shape[-1], counts.sum(-1)
        for alpha in self.alphas:
            means.append(Dirichlet(alpha).posterior_mean(counts))
            whole = torch.tensor(alpha * symbols, dtype=DTYPE)
            part = torch.tensor(alpha, dtype=DTYPE)
            evidence.append(
                torch.lgamma(whole)
                - torch.lgamma(whole + total)
                + (torch.lgamma(part + counts) - torch.lgamma(part)).sum(-1)
            )
        weight = torch.stack(evidence, -1).softmax(-1)
        return (torch.stack(means, -1) * weight[..., None, :]).sum(-1)


@dataclass(frozen=True)
class Peaked:
    """Every row gives 1 - `noise` to one uniform symbol and spreads `noise` over all evenly."""

    noise: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.noise <= 1:
            raise InvalidArgumentError(
                "noise of peaked rows must lie in (0, 1]",
                got=str(self.noise),
                wanted="more than 0, so that every transition is possible",
                todo="mend noise",
            )

    def sample(
        self, shape: tuple[int, ...], symbols: int, *, generator: torch.Generator
    ) -> Float[Tensor, "*shape symbols"]:
        top = torch.randint(symbols, shape, generator=generator)
        one_hot = torch.nn.functional.one_hot(top, symbols).to(DTYPE)
        return self._row(one_hot, symbols)

    def posterior_mean(self, counts: Float[Tensor, "batch symbols"]) -> Float[Tensor, ...]:
        symbols = counts.shape[-1]
        odds = torch.tensor((1 - self.noise) * symbols / self.noise + 1, dtype=DTYPE)
        return self._row((counts.to(DTYPE) * odds.log()).softmax(-1), symbols)

    def _row(self, top: Tensor, symbols: int) -> Tensor:
        return (1 - self.noise) * top + self.noise / symbols


def stationary_law(
    transitions: Float[Tensor, "batch symbols symbols"],
) -> Float[Tensor, "batch symbols"]:
    """The law mu with mu pi = mu, of each matrix of a batch.

    The elimination of Grassmann, Taksar and Heyman (1985): no subtractions, so nearly reducible
    matrices (Dirichlet rows with a small alpha) lose no accuracy. Rows sum to 1, entries > 0.

    >>> stationary_law(torch.tensor([[[0.5, 0.5], [0.25, 0.75]]], dtype=DTYPE))
    tensor([[0.3333, 0.6667]], dtype=torch.float64)
    """
    p = transitions.clamp(min=TINY).clone()
    symbols = p.shape[-1]
    for last in range(symbols - 1, 0, -1):
        out = p[:, last, :last].sum(-1, keepdim=True)
        p[:, :last, last] /= out
        p[:, :last, :last] += p[:, :last, last, None] * p[:, None, last, :last]
    mu = torch.ones_like(p[:, 0])
    for state in range(1, symbols):
        mu[:, state] = (mu[:, :state] * p[:, :state, state]).sum(-1)
        mu /= mu.sum(-1, keepdim=True)
    return mu


def _check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise InvalidArgumentError(
            f"{name} must be positive", got=str(value), wanted="more than 0", todo=f"raise {name}"
        )
