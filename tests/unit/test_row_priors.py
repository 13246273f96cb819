"""Row priors: draws, posterior means against simulation, and the stationary law."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE
from imir_detect.tasks.row_priors import (
    Dirichlet,
    DirichletMixture,
    Peaked,
    RowPrior,
    stationary_law,
)

PRIORS = [Dirichlet(0.5), DirichletMixture((0.2, 2.0)), Peaked(0.3)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("prior", PRIORS)
def test_rows_are_laws_with_uniform_mean(prior: RowPrior) -> None:
    rows = prior.sample((4000, 2), 3, generator=generator())
    assert rows.shape == (4000, 2, 3)
    assert_close(rows.sum(-1), torch.ones(4000, 2, dtype=DTYPE))
    assert_close(rows.mean((0, 1)), torch.full((3,), 1 / 3, dtype=DTYPE), atol=0.02, rtol=0)


@pytest.mark.parametrize("prior", PRIORS)
def test_posterior_mean_is_the_mean_of_rows_given_the_counts(prior: RowPrior) -> None:
    """Rejection by hand: keep the rows whose five draws show the counts (3, 2, 0)."""
    n = 60000
    rows = prior.sample((n,), 3, generator=generator(1))
    draws = torch.multinomial(rows, 5, replacement=True, generator=generator(2))
    counts = torch.nn.functional.one_hot(draws, 3).sum(1)
    kept = rows[(counts == torch.tensor([3, 2, 0])).all(-1)]
    assert len(kept) > 1000
    expected = prior.posterior_mean(torch.tensor([[3.0, 2.0, 0.0]], dtype=DTYPE))[0]
    tolerance = float(4 * kept.std(0).max() / len(kept) ** 0.5)
    assert_close(kept.mean(0), expected, atol=tolerance, rtol=0)


def test_a_mixture_of_one_alpha_is_that_dirichlet() -> None:
    counts = torch.tensor([[4.0, 1.0, 0.0]], dtype=DTYPE)
    assert_close(
        DirichletMixture((0.7,)).posterior_mean(counts), Dirichlet(0.7).posterior_mean(counts)
    )


def test_dirichlet_has_the_variance_of_its_alpha() -> None:
    """var = (1/S)(1 - 1/S) / (S alpha + 1), at S = 4 and alpha = 0.1: 3/16 / 1.4."""
    rows = Dirichlet(0.1).sample((50000,), 4, generator=generator())
    assert_close(rows[:, 0].var(), torch.tensor(3 / 16 / 1.4, dtype=DTYPE), rtol=0.03, atol=0)


def test_stationary_law_is_stationary_even_for_nearly_reducible_matrices() -> None:
    matrices = Dirichlet(0.02).sample((500, 6), 6, generator=generator())
    mu = stationary_law(matrices)
    assert_close(mu.sum(-1), torch.ones(500, dtype=DTYPE))
    assert bool((mu >= 0).all())
    assert_close((mu[:, None] @ matrices)[:, 0], mu, atol=1e-12, rtol=0)


def test_stationary_law_by_hand() -> None:
    """Two states left with probabilities a and b have the law (b, a) / (a + b)."""
    matrix = torch.tensor([[[1 - 1e-9, 1e-9], [3e-9, 1 - 3e-9]]], dtype=DTYPE)
    assert_close(stationary_law(matrix)[0], torch.tensor([0.75, 0.25], dtype=DTYPE))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dirichlet(0.0), "alpha must be positive; got 0.0"),
        (lambda: DirichletMixture((1.0, -1.0)), "alphas must be positive; got -1.0"),
        (lambda: DirichletMixture(()), "the number of alphas must be positive; got 0"),
        (lambda: Peaked(0.0), "noise of peaked rows must lie in (0, 1]; got 0.0"),
    ],
)
def test_wrong_knobs_are_refused(make: object, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        make()  # type: ignore[operator]
    assert message in str(caught.value)
