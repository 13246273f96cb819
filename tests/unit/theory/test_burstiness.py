"""Theorem 3: exact at the origin, near-proportional at small coordinates, saturating beyond."""

from __future__ import annotations

import pytest

from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory.burstiness import burstiness, gamma_ratio


def lexinvariant(n: int, vocab: int) -> AssociativeRecall:
    return AssociativeRecall(n_blocks=n, n_common=0, n_rare=vocab, rare_frequency=1.0)


def test_the_ratio_by_hand() -> None:
    # V = 10, T = 5: (2 * 10 - 5) / (10 - 5) = 3.
    assert gamma_ratio(2, 10, 5) == 3.0


def test_gamma_at_the_origin_is_exact_and_the_others_nearly_proportional() -> None:
    rows = burstiness(lexinvariant(64, 384), n=512, chunks=4)
    for row in rows:
        if row["coordinate"] == "gamma at the origin":
            assert row["measured"] == pytest.approx(row["predicted"], rel=1e-9)
        else:
            # The standard error of beta's g(1) at 512 sequences is about 0.1.
            assert 0.8 < float(row["slope"]) < 1.1


def test_a_developed_circuit_saturates() -> None:
    small = burstiness(lexinvariant(16, 64), n=1024, chunks=4)
    grown = burstiness(lexinvariant(16, 64), n=1024, chunks=4, point=(3.0, 4.0, 2.0))
    for a, b in zip(small[:8], grown[:8], strict=True):
        assert float(b["slope"]) < float(a["slope"]) - 0.1


def test_a_context_without_distractors_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="needs distractors; got b = 8 of 8 blocks"):
        burstiness(lexinvariant(8, 64))


def test_an_answer_that_may_be_absent_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"theorem 3.*got present=0.5"):
        burstiness(AssociativeRecall(present=0.5))
