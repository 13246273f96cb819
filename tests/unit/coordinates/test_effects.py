"""Factored readings against a literal dense oracle, hand-sized tables, and the permutation law."""

import itertools

import pytest
import torch

from imir_detect.coordinates.effects import ZERO, Reading, read_selection, read_shift

F64 = torch.float64


def dense_reading(A: torch.Tensor, B: torch.Tensor, partner: torch.Tensor) -> Reading:
    """The definitions, literally: build S, centre it, build the selection, take means."""
    n = len(A)
    H = torch.eye(n, dtype=F64) - 1 / n
    S = H @ (A @ B.T) @ H
    C = torch.zeros(n, n, dtype=F64)
    for i, j in enumerate(partner.tolist()):
        if j >= 0:
            C[i, j] = 1
    on, off = S[C == 1], S[C == 0]
    centred = H @ C @ H
    M = H @ C.T @ S @ H
    return Reading(
        effect=float(on.mean() - off.mean()),
        cosine=float((S * centred).sum() / (S.norm() * centred.norm())),
        z=float((S * C).sum() / (M.norm() / (n - 1) ** 0.5)),
        spread=float(off.std(correction=0)),
    )


RELATIONS = {
    "identity": None,
    "involution": [1, 0, 3, 2, 5, 4, -1, -1, -1],
    "directed": [4, 5, 6, 7, -1, -1, -1, -1, -1],
    "many to one": [2, 2, 0, 2, -1, 8, -1, -1, 1],
}


@pytest.mark.parametrize("name", RELATIONS)
@pytest.mark.parametrize("rank", [1, 4, 12])
def test_factored_equals_dense(name: str, rank: int) -> None:
    generator = torch.Generator().manual_seed(rank)
    A, B = (3 * torch.randn(9, rank, generator=generator, dtype=F64) for _ in range(2))
    relation = RELATIONS[name]
    partner = None if relation is None else torch.tensor(relation)
    fast = read_selection(A, B, partner)
    slow = dense_reading(A, B, torch.arange(9) if partner is None else partner)
    for field in ("effect", "cosine", "z", "spread"):
        assert getattr(fast, field) == pytest.approx(getattr(slow, field), rel=1e-9, abs=1e-9), (
            field
        )


def test_a_table_worked_out_by_hand() -> None:
    # S = 3 I on three tokens: on the diagonal 3, off it 0; centring keeps the contrast of 3.
    eye = torch.eye(3, dtype=F64)
    reading = read_selection(3 * eye, eye)
    assert reading.effect == pytest.approx(3)
    assert reading.cosine == pytest.approx(1)
    assert reading.z == pytest.approx(2)  # (N - 1) * cosine
    assert reading.spread == pytest.approx(0, abs=1e-12)


def test_z_is_standardised_over_all_permutations() -> None:
    generator = torch.Generator().manual_seed(0)
    A, B = (torch.randn(5, 2, generator=generator, dtype=F64) for _ in range(2))
    partner = torch.tensor([3, 0, -1, -1, 2])
    zs = [
        read_selection(A, B[list(order)], partner).z for order in itertools.permutations(range(5))
    ]
    values = torch.tensor(zs, dtype=F64)
    assert float(values.mean()) == pytest.approx(0, abs=1e-9)
    assert float(values.pow(2).mean()) == pytest.approx(1, rel=1e-9)


def test_adding_a_constant_to_rows_or_columns_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(1)
    A, B = (torch.randn(8, 3, generator=generator, dtype=F64) for _ in range(2))
    one, zero = torch.ones(8, 1, dtype=F64), torch.zeros(8, 1, dtype=F64)
    shifted = read_selection(torch.cat([A, one, zero + 7], 1), torch.cat([B, zero + 5, one], 1))
    assert shifted.effect == pytest.approx(read_selection(A, B).effect, rel=1e-9)


def test_zero_tables_and_empty_relations_read_as_zero() -> None:
    eye, ones = torch.eye(4, dtype=F64), torch.ones(4, 4, dtype=F64)
    assert read_selection(0 * eye, eye) == ZERO
    assert read_selection(ones, ones) == ZERO  # constant over tokens: centring leaves nothing
    assert read_selection(eye, eye, torch.full((4,), -1)) == ZERO
    assert read_selection(eye[:1], eye[:1]) == ZERO


def test_a_shift_worked_out_by_hand() -> None:
    # Causal 4 x 4: score 2 one back, 0 elsewhere. On: mean 2. Off: 7 entries of 0.
    S = 2 * torch.diag(torch.ones(3, dtype=F64), -1)
    reading = read_shift(S, 1)
    assert (reading.effect, reading.z, reading.spread) == (2.0, None, 0.0)
    assert reading.cosine == pytest.approx(1)
    # Two back is one of the zeros: 0 against (3 * 2 + 5 * 0) / 8.
    assert read_shift(S, 2).effect == pytest.approx(-0.75)


def test_a_row_constant_is_no_shift() -> None:
    generator = torch.Generator().manual_seed(2)
    S = torch.randn(6, 6, generator=generator, dtype=F64)
    offset = torch.randn(6, 1, generator=generator, dtype=F64)
    assert read_shift(S + offset, 1).cosine == pytest.approx(read_shift(S, 1).cosine, rel=1e-9)
    assert read_shift(S, 6) == Reading(0.0, 0.0, None, 0.0)
