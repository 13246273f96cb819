"""Selections as matrices: what commutes with a block-list task's symmetries, in closed form.

Tokens and positions are stacked into one axis of V + N rows, so that selections between tokens,
between positions and between the two are all (V + N, V + N) matrices, zero outside their block.
The law of a task is unchanged by relabelling tokens within a class (with R kept) and, with cyclic
offsets, by rotating positions. The matrices here span what commutes with those relabellings; the
null space in `commutant` is the oracle.
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from imir_detect._typing import Bool, Float, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.names import (
    ASSOCIATION,
    POSITION_IDENTITY,
    TOKEN_IDENTITY,
    Selection,
    Space,
    shift,
)
from imir_detect.linalg import DTYPE

ASSOCIATION_BACK = Selection("token", "association_back")
POSITION_CLASS = "position"


def cycle(offset: int) -> Selection:
    """The circulant "offset back", wrapping around at the first position."""
    return Selection("position", "cycle", offset)


def class_identity(name: str) -> Selection:
    """The identity on the tokens of one class."""
    return Selection("token", "identity", 0, (name,))


def is_directed(relation: Int[Tensor, " vocab"]) -> bool:
    """False where R is an involution on the tokens it names (then C is symmetric)."""
    named = relation >= 0
    return not bool((relation[relation[named]] == torch.arange(len(relation))[named]).all())


def token_classes(relation: Int[Tensor, " vocab"]) -> dict[str, Bool[Tensor, " vocab"]]:
    """Tokens by the part they play in R; empty classes are left out.

    Undirected R: "common" and "rare" (not named by R). Directed R: "key", "value", "rare".

    >>> {k: v.tolist() for k, v in token_classes(torch.tensor([1, 0, -1])).items()}
    {'common': [True, True, False], 'rare': [False, False, True]}
    """
    key = relation >= 0
    value = torch.zeros_like(key)
    value[relation[key]] = True
    if is_directed(relation):
        if bool((key & value).any()):
            raise InvalidArgumentError(
                "a directed relation must map keys to tokens that are no keys",
                got=f"{int((key & value).sum())} tokens that are both",
                wanted="disjoint keys and values, or an involution",
                todo="use an involution, or split the vocabulary",
            )
        classes = {"key": key, "value": value, "rare": ~key & ~value}
    else:
        classes = {"common": key, "rare": ~key}
    return {name: mask for name, mask in classes.items() if bool(mask.any())}


def selections(
    relation: Int[Tensor, " vocab"],
    n_positions: int,
    *,
    shifts: int | None = None,
    per_class: bool = True,
    association: bool = True,
    back: bool = True,
    ones: bool = False,
) -> dict[Selection, Float[Tensor, "row column"]]:
    """Selections of a task as (V + N, V + N) matrices, in a fixed order.

    - tokens: an identity per class (`per_class`; else one for all), C where R names a token, and
      C^T (`back`) where R is directed.
    - positions: the identity and all N - 1 circulants (`shifts` None: exact), or the truncated
      M .. M^shifts (the approximation that suits independent block offsets).
    - `ones`: all-ones blocks between token classes and between classes and positions, needed
      where embeddings are not centred.

    These are the basis of the paper, section 3, made exact: class identities, C^T, all-ones and
    the circulants are what a numerical check of its Theorem 1 needs.

    >>> [str(s) for s in selections(torch.tensor([-1, -1]), 3, shifts=1)]
    ['identity of rare', 'identity of positions', 'shift 1']
    """
    vocab = len(relation)
    size = vocab + n_positions
    classes = token_classes(relation)
    found: dict[Selection, Tensor] = {}

    def put(selection: Selection, rows: Tensor, columns: Tensor) -> None:
        found[selection] = torch.zeros(size, size, dtype=DTYPE)
        found[selection][rows, columns] = 1.0

    token, place = torch.arange(vocab), torch.arange(n_positions)
    if per_class:
        for name, mask in classes.items():
            put(class_identity(name), token[mask], token[mask])
    else:
        put(TOKEN_IDENTITY, token, token)
    named = relation >= 0
    if association and bool(named.any()):
        put(ASSOCIATION, token[named], relation[named])
        if back and is_directed(relation):
            put(ASSOCIATION_BACK, relation[named], token[named])
    put(POSITION_IDENTITY, vocab + place, vocab + place)
    if shifts is None:
        for k in range(1, n_positions):
            put(cycle(k), vocab + place, vocab + (place - k) % n_positions)
    else:
        for k in range(1, shifts + 1):
            put(shift(k), vocab + place[k:], vocab + place[k:] - k)
    if ones:
        groups = {name: token[mask] for name, mask in classes.items()}
        groups[POSITION_CLASS] = vocab + place
        for (a, rows), (b, columns) in product(groups.items(), groups.items()):
            kinds = {a == POSITION_CLASS, b == POSITION_CLASS}
            if kinds == {True} and shifts is None:
                continue  # the sum of all circulants
            space: Space = (
                "mixed" if len(kinds) == 2 else "position" if kinds == {True} else "token"
            )
            put(Selection(space, "ones", 0, (a, b)), rows[:, None], columns[None, :])
    return found


def centre(
    relation: Int[Tensor, " vocab"], n_positions: int, *, by_class: bool = True
) -> Float[Tensor, "row column"]:
    """The projector that removes each token class's mean, and the positions' mean.

    With `by_class` False all tokens share one mean. Applied to jointly orthonormal embeddings it
    makes them centred; then no all-ones selection is needed (with class means removed).
    """
    vocab = len(relation)
    groups = list(token_classes(relation).values()) if by_class else [relation >= -1]
    projector = torch.eye(vocab + n_positions, dtype=DTYPE)
    for mask in groups:
        index = mask.nonzero()[:, 0]
        projector[index[:, None], index[None, :]] -= 1 / len(index)
    projector[vocab:, vocab:] -= 1 / n_positions
    return projector
