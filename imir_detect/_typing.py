"""The one vocabulary of axes, used alike in jaxtyping shapes, einops strings and docstrings.

    vocab      tokens                     pos        places of a sequence
    batch      sequences                  layer      blocks, counted from 0
    head       heads of a layer, from 0   d_model    width of the residual stream
    d_head     width of one head          direction  basis weights of a frame
    unit       directions in the part they play (shift, match, copy, associate)

Row vectors everywhere: a residual row `x` has shape (d_model,), and `x @ W`.
"""

from __future__ import annotations

from typing import TypeAlias

from jaxtyping import Bool, Float, Int
from torch import Tensor

HeadIndex: TypeAlias = tuple[int, int]  # (layer, head), both from 0

__all__ = ["Bool", "Float", "HeadIndex", "Int", "Tensor"]
