"""Answers as plain JSON, and how two of them are compared."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from imir_detect.errors import ImirError

WHOLE = 24  # numbers up to which a tensor is written out; of a larger one, four sums
RELATIVE, ABSOLUTE = 1e-5, 1e-8
Case = Callable[[], Any]


def plain(value: Any) -> Any:
    """Nested lists, dictionaries, numbers and words."""
    if isinstance(value, Tensor):
        return _tensor(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, (list, tuple, range)):
        rows = len(value) > 3 and all(is_dataclass(v) and type(v) is type(value[0]) for v in value)
        return _columns(value) if rows else [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _columns(rows: Sequence[Any]) -> Any:
    """A table, column by column; of a long one, sums of its numbers and a checksum of its words."""
    found = {}
    for f in fields(rows[0]):
        column = [getattr(row, f.name) for row in rows]
        if len(column) > WHOLE and all(isinstance(x, (int, float, type(None))) for x in column):
            numbers = torch.tensor([x or 0.0 for x in column], dtype=torch.float64)
            found[f.name] = [_tensor(numbers), sum(x is None for x in column)]
        elif len(column) > WHOLE and all(isinstance(x, str) for x in column):
            found[f.name] = [len(column), zlib.crc32(json.dumps(column).encode())]
        else:
            found[f.name] = plain(column)
    return found


def _tensor(value: Tensor) -> Any:
    if value.numel() <= WHOLE:
        entries = value.to(torch.float64) if value.is_floating_point() else value
        return {"shape": list(value.shape), "values": plain(entries.flatten().tolist())}
    flat = value.flatten().to(torch.float64)
    finite = torch.isfinite(flat)
    flat = torch.where(finite, flat, 0.0)
    place = torch.arange(len(flat), dtype=torch.float64)
    return {
        "shape": list(value.shape),
        "finite": int(finite.sum()),
        "sum": float(flat.sum()),
        "square": float(flat.square().sum()),
        "waves": [float((flat * (k + place * k).cos()).sum()) for k in (1, 2, 3)],
    }


def said(act: Callable[[], Any]) -> str:
    """What an error says, all of it; "no error" where there is none."""
    try:
        act()
    except ImirError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def differences(got: Any, wanted: Any, at: str = "") -> Iterator[str]:
    """Where two plain answers differ by more than rounding."""
    if isinstance(got, dict) and isinstance(wanted, dict):
        if list(got) != list(wanted):
            yield f"{at}: {list(got)}, not {list(wanted)}"
            return
        for key in got:
            yield from differences(got[key], wanted[key], f"{at}.{key}")
    elif isinstance(got, list) and isinstance(wanted, list):
        if len(got) != len(wanted):
            yield f"{at}: {len(got)} entries, not {len(wanted)}"
            return
        for i, (one, other) in enumerate(zip(got, wanted, strict=True)):
            yield from differences(one, other, f"{at}[{i}]")
    elif isinstance(got, float) or isinstance(wanted, float):
        number = all(isinstance(x, (int, float)) for x in (got, wanted))
        if not number or not math.isclose(got, wanted, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            yield f"{at}: {got!r}, not {wanted!r}"
    elif got != wanted or type(got) is not type(wanted):
        yield f"{at}: {got!r}, not {wanted!r}"
