"""Single arguments: what counts as a whole number, what as a seed, and how a value is quoted."""

from __future__ import annotations

import operator
from typing import Any

import torch

from imir_detect.errors import InvalidArgumentError

LARGEST_SEED = 2**32 - 1  # what every generator in use takes


def whole(value: Any) -> int | None:
    """A whole number of any kind (Python's, numpy's, a tensor of one entry), or None.

    >>> whole(torch.tensor(3)), whole(True), whole(3.0)
    (3, None, None)
    """
    flag = isinstance(value, bool) or getattr(value, "dtype", None) == torch.bool
    try:
        return None if flag else operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def check_seed(seed: Any) -> int:
    """The seed as an int."""
    number = whole(seed)
    if number is None or not 0 <= number <= LARGEST_SEED:
        raise InvalidArgumentError(
            "this is no seed",
            got=f"seed={shown(seed)}",
            wanted=f"a whole number in 0 .. {LARGEST_SEED}",
            todo="leave seed out for 0",
        )
    return number


def shown(value: Any) -> str:
    """The value as Python would write it, cut where it gets long."""
    try:
        text = repr(value)
    except Exception:  # an object that cannot say what it is
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
