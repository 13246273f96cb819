"""Questions are asked of every model, however small, and wherever it answers."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from imir_detect import detect_circuits
from imir_detect.circuits.asking import _one_class
from imir_detect.weights.native import ModelSpec


@pytest.mark.parametrize(("vocabulary", "length"), [(4, 3), (5, 5), (12, 6)])
@pytest.mark.parametrize("scale", [None, 1.0])
def test_models_of_a_few_tokens_and_places_are_read(vocabulary, length, scale) -> None:
    for seed in range(2):
        spec = ModelSpec(vocabulary, length, n_heads=2, d_model=8, init_range=scale)
        model = spec.boot(seed=seed)
        for relation in (None, {0: 1}, {0: 1, 1: 2, 2: 0}):
            report = detect_circuits(model, relation=relation)
            assert set(report.meta["predicted_accuracy"]) == {"icl", "iwl"}
            assert all(0 <= share <= 1 for share in report.meta["predicted_accuracy"].values())


def answers_of(right_of: Callable[[int, int], bool], n: int = 3000) -> tuple[Tensor, ...]:
    """Random questions about 16 tokens: query, wanted token, and whether it is answered."""
    generator = torch.Generator().manual_seed(0)
    query, wanted = torch.randint(16, (2, n), generator=generator)
    pairs = zip(query.tolist(), wanted.tolist(), strict=True)
    return query, wanted, torch.tensor([float(right_of(a, b)) for a, b in pairs]).double()


def test_of_two_classes_the_one_that_is_answered_more_is_asked() -> None:
    """Tokens 0 .. 7 are answered among themselves half of the time, 8 .. 15 always."""
    coin = torch.Generator().manual_seed(1)

    def right(a: int, b: int) -> bool:
        half = bool(torch.rand((), generator=coin) < 0.5)
        return (a < 8) == (b < 8) and (a >= 8 or half)

    kept = _one_class(torch.ones(16, dtype=torch.bool), *answers_of(right))
    assert kept.nonzero()[:, 0].tolist() == list(range(8, 16))


@pytest.mark.parametrize(
    "right",
    [
        lambda a, b: True,
        lambda a, b: (a + b) % 3 == 0,  # no classes
        lambda a, b: (a < 8) == (b < 8) or (a * b) % 3 < 2,  # across, too, more than half as often
        lambda a, b: (a < 5) == (b < 5),  # five tokens are too few to be asked alone
    ],
)
def test_without_two_classes_all_tokens_are_asked(right: Callable[[int, int], bool]) -> None:
    everyone = torch.ones(16, dtype=torch.bool)
    assert torch.equal(_one_class(everyone, *answers_of(right)), everyone)


def test_tokens_left_out_before_stay_out() -> None:
    keep = torch.arange(16) != 3
    kept = _one_class(keep, *answers_of(lambda a, b: a < 8 and b < 8))
    assert torch.equal(kept, keep)  # seven tokens of the better class are left: too few
