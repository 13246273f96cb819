"""What a norm module computes, found by calling a copy of it.

A configuration keeps saying "LN" after folding, and some families store a gain g as g - 1; so the
module itself is asked, and its parameters are used only in the convention that the answer shows.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from imir_detect.errors import UnsupportedModelError
from imir_detect.linalg import DTYPE, to_analysis
from imir_detect.weights.offloaded import bare_copy
from imir_detect.weights.raw import Norm

LOUD = 1e4  # probes are so large that no usual eps matters
CLOSE = 1e-4


def read_norm(module: Any, width: int, name: str) -> Norm:
    """Kind, gain and bias of a norm over the last axis, of this width; None is no norm.

    With rows x of mean 0 and mean square 1: LN and RMS both map A x to gain x + bias, a constant
    row tells them apart, and no norm maps 2 A x to twice what it maps A x to.
    """
    if module is None:
        return Norm.absent(width)
    if width < 2:
        raise UnsupportedModelError(
            f"{name} cannot be told from no norm in a stream of one number",
            got=f"d_model {width}",
            wanted="at least 2",
            todo="use a wider model",
        )
    call = _copy(module)
    generator = torch.Generator().manual_seed(0)
    x = 0.5 + torch.rand(width, generator=generator, dtype=DTYPE)
    x = x * torch.tensor([1.0, -1.0], dtype=DTYPE).repeat(width)[:width]
    x = x - x.mean()
    x = x / x.pow(2).mean().sqrt()
    flat = torch.ones(width, dtype=DTYPE)
    up, down, twice, even = (call(LOUD * row) for row in (x, -x, 2 * x, flat))
    if torch.allclose(twice, 2 * up, rtol=CLOSE) and float(up.abs().max()) > 0.1 * LOUD:
        return Norm.absent(width)
    kind: Literal["LN", "RMS"]
    gain, bias = (up - down) / (2 * x), (up + down) / 2
    size = 1 + float(gain.abs().max())
    if float(gain.abs().max()) < CLOSE:  # gains of zero tell nothing apart; ask for the name
        kind = "RMS" if "RMS" in type(_inner(module)).__name__ else "LN"
    elif torch.allclose(even, gain + bias, atol=CLOSE * size):
        kind = "RMS"
    elif torch.allclose(even, bias, atol=CLOSE * size):
        kind = "LN"
    else:
        raise UnsupportedModelError(
            f"{name} is no LayerNorm and no RMSNorm",
            got=type(module).__name__,
            wanted="a norm that divides by the root mean square of its input",
            todo="nothing is guessed: use a model without it",
        )
    return Norm(kind, _exact(module, "weight", gain, size), _exact(module, "bias", bias, size))


def _inner(module: Any) -> Any:
    """The library's own module behind a bridge's component."""
    inner = getattr(module, "original_component", None)
    return module if inner is None else inner


def _copy(module: Any) -> Any:
    call = bare_copy(_inner(module)).to("cpu", DTYPE).eval()

    def run(row: Tensor) -> Tensor:
        with torch.no_grad():
            return call(row[None, None]).to(DTYPE)[0, 0]

    return run


def _exact(module: Any, name: str, probed: Tensor, size: float) -> Tensor:
    """The stored parameter where it (or one plus it) is what was probed, free of rounding."""
    stored = getattr(module, name, None)
    if not isinstance(stored, Tensor):
        stored = torch.zeros_like(probed)
    stored = to_analysis(stored)
    for value in (stored, 1 + stored):
        if value.shape == probed.shape and torch.allclose(value, probed, atol=CLOSE * size):
            return value
    return probed
