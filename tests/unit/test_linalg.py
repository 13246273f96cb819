"""The numeric policy: dtype, rank, and what counts as round-off."""

import pytest
import torch

from imir_detect.errors import ImirError, InvalidWeightsError
from imir_detect.linalg import ROUNDOFF, clamp_roundoff, effective_rank, to_analysis


def test_analysis_copies_share_no_memory_with_the_model() -> None:
    weight = torch.ones(2, dtype=torch.float64)
    copy = to_analysis(weight)
    copy[0] = 5
    assert weight[0] == 1
    assert to_analysis(torch.ones(1, dtype=torch.float16)).dtype == torch.float64


def test_packed_integers_are_not_weights() -> None:
    with pytest.raises(InvalidWeightsError, match=r"uint8.*dequantise"):
        to_analysis(torch.zeros(3, dtype=torch.uint8))


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_rank_of_a_product_of_thin_factors(rank: int) -> None:
    generator = torch.Generator().manual_seed(rank)
    left = torch.randn(7, rank, generator=generator, dtype=torch.float64)
    right = torch.randn(rank, 5, generator=generator, dtype=torch.float64)
    assert effective_rank(left @ right) == rank


def test_roundoff_is_taken_back_and_more_is_an_error() -> None:
    inside = torch.tensor(1 + ROUNDOFF / 2, dtype=torch.float64)
    assert clamp_roundoff(inside, -1, 1, what="a cosine") == 1
    with pytest.raises(ImirError, match=r"a cosine lies outside.*got an excess of 0.01"):
        clamp_roundoff(torch.tensor(1.01, dtype=torch.float64), -1, 1, what="a cosine")
    with pytest.raises(ImirError, match="lies outside"):
        clamp_roundoff(torch.tensor(float("nan")), -1, 1, what="a cosine")
