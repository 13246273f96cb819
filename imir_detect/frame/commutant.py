"""The commutant of a group from its generators: the oracle for closed-form selections."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE, rank_tolerance

LARGEST = 32  # the null space of a (size^2, size^2) matrix: 8 MB at 32, 128 MB at 64


def permutation_matrix(images: Int[Tensor, " size"]) -> Float[Tensor, "size size"]:
    """The matrix with a 1 at [i, images[i]]: row vectors, e_i -> e_images[i]."""
    size = len(images)
    if not torch.equal(images.sort().values, torch.arange(size)):
        raise InvalidArgumentError(
            "a group generator must be a permutation",
            got=str(images.tolist()),
            wanted=f"every number of 0 .. {size - 1} once",
            todo="mend the generator",
        )
    return torch.eye(size, dtype=DTYPE)[images]


def commutant(generators: Sequence[Int[Tensor, " size"]]) -> Float[Tensor, "dim size size"]:
    """An orthonormal basis of all matrices B with P B = B P for every generator P.

    Row-major vec: vec(P B - B P) = (P x I - I x P^T) vec(B); the null space of all of them
    stacked. Dense, so for at most 32 points.

    >>> commutant([torch.tensor([1, 2, 0])]).shape[0]  # the circulants of size 3
    3
    """
    size = len(generators[0])
    if size > LARGEST:
        raise InvalidArgumentError(
            "the group acts on too many points for a dense null space",
            got=str(size),
            wanted=f"at most {LARGEST}",
            todo="use the closed forms of imir_detect.frame.relations",
        )
    eye = torch.eye(size, dtype=DTYPE)
    normal = torch.zeros(size * size, size * size, dtype=DTYPE)
    for images in generators:
        p = permutation_matrix(images)
        equation = torch.kron(p, eye) - torch.kron(eye, p.T.contiguous())
        normal += equation.T @ equation
    values, vectors = torch.linalg.eigh(normal)
    null = values <= rank_tolerance(normal) * max(1.0, float(values[-1]))
    return vectors[:, null].T.reshape(-1, size, size)


def span_distance(a: Float[Tensor, "n size size"], b: Float[Tensor, "k size size"]) -> float:
    """Largest sine between the spans of two sets of matrices; 1 where their ranks differ."""
    bases = []
    for matrices in (a, b):
        flat = matrices.reshape(len(matrices), -1).T
        left, values, _ = torch.linalg.svd(flat, full_matrices=False)
        bases.append(left[:, values > rank_tolerance(flat) * values[0]])
    first, second = bases
    if first.shape[1] != second.shape[1]:
        return 1.0
    return float(torch.linalg.matrix_norm(first - second @ (second.T @ first), ord=2))
