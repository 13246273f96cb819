"""What `fuzz.py` makes hostile inputs from: values nobody should pass, and documents bent anywhere.

Everything is drawn from the `random.Random` that is given, so that an input can be made again from
its seed.
"""

from __future__ import annotations

import copy
import json
import pickle
import struct
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import save

LONG = "x" * 300
TEXTS = (
    "",
    " ",
    "icl",
    "recall",
    "../../escape",
    "/etc/passwd",
    "/dev/zero",
    "nul\0byte",
    "\ud800",
    "\u202e\u2028",
    "\x1b[2J\x07",
    "</script><script>alert(1)</script>",
    "{{ 7 * 7 }}",
    "[red]not markup[/red]",
    "-1",
    "nan",
    "%s%n",
    "a/b/c",
    "a/b/c/d",
    "induction/zero/edge",
    "os:system",
    LONG,
)
NUMBERS = (0, 1, -1, 2, 3, 7, 64, 10**6, 2**31, 2**63, 10**30, -(2**40), 0.5, -0.0, 1e-320, 1e308)
ODD = (None, True, False, [], {}, [[]], [0, 0], [None] * 3, {"": None}, {"a": {"b": [1]}})
RAW = (  # text that replaces one value of a JSON document
    "NaN",
    "-Infinity",
    "1e999",
    "9" * 5000,
    "-0",
    "[" * 20000,
    '{"a":' * 20000,
    '"\\ud800"',
    '"\\u0000"',
    "01",
    "'x'",
    "{,}",
    '{"a": 1, "a": 2}',
    "tru",
    '"unclosed',
    "/* */ 1",
)


class Boom:
    """A pickle of this runs code when it is loaded; the fuzz would see the file it makes."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("pwned"),)


def value(rng: Random) -> Any:
    """One hostile value."""
    return copy.deepcopy(rng.choice(rng.choice((TEXTS, NUMBERS, ODD))))


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a JSON document."""
    if isinstance(document, dict | list):
        keys = list(document) if isinstance(document, dict) else range(len(document))
        for key in keys:
            yield document, key
            yield from places(document[key])


def bent(document: Any, rng: Random) -> Any:
    """A copy of a JSON document with one to three places replaced, removed, doubled or moved."""
    document = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        found = list(places(document))
        if not found:
            return value(rng)
        container, key = rng.choice(found)
        kind = rng.random()
        if kind < 0.25:
            container[key] = alike(container[key], rng)
        elif kind < 0.55:
            container[key] = value(rng)
        elif kind < 0.75:
            del container[key]
        elif kind < 0.85 and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        elif kind < 0.85:
            container[rng.choice(TEXTS)] = container[key]
        else:
            other, place = rng.choice(found)
            if not isinstance(other, dict) or place in other:
                container[key] = copy.deepcopy(other[place] if _has(other, place) else None)
    return document if rng.random() > 0.02 else value(rng)


def alike(old: Any, rng: Random) -> Any:
    """A value of the same kind that may well pass: odd text, another number of about that size."""
    if isinstance(old, bool) or not isinstance(old, str | int | float):
        return old
    if isinstance(old, str):
        return rng.choice(TEXTS)
    return rng.choice((0, 1, old + 1, 2 * old)) if isinstance(old, int) else rng.random()


def _has(container: Any, key: Any) -> bool:
    return key in container if isinstance(container, dict) else key < len(container)


def json_bytes(document: Any, rng: Random) -> bytes:
    """A bent document as a file: as JSON writes it, or with a value that is no JSON, or broken."""
    data = bent(document, rng)
    kind = rng.random()
    if kind < 0.6:
        return json.dumps(data).encode()
    if kind < 0.75:
        good = copy.deepcopy(document)
        found = list(places(good))
        if found:
            container, key = rng.choice(found)
            container[key] = "@@"
        return json.dumps(good).replace('"@@"', rng.choice(RAW)).encode()
    return broken(json.dumps(document).encode(), rng)


def broken(data: bytes, rng: Random) -> bytes:
    """Bytes cut, flipped, doubled, or of another encoding or kind of file altogether."""
    kind = rng.randrange(9)
    cut = rng.randrange(len(data) + 1)
    if kind == 0:
        return data[:cut]
    if kind == 1:
        flipped = bytearray(data)
        for _ in range(rng.choice((1, 4, 64))):
            flipped[rng.randrange(len(flipped))] = rng.randrange(256)
        return bytes(flipped)
    if kind == 2:
        return b"\xef\xbb\xbf" + data
    if kind == 3:
        return data.decode("latin-1").encode("utf-16")
    if kind == 4:
        return data + data
    if kind == 5:
        return pickle.dumps(Boom())
    if kind == 6:
        return zipped(rng)
    if kind == 7:
        return rng.randbytes(rng.choice((0, 1, 7, 8, 64)))
    return data[:cut] + rng.randbytes(9) + data[cut:]


def zipped(rng: Random) -> bytes:
    """An archive with names that lead elsewhere, whole or cut."""
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("../../escape", b"x")
        archive.writestr("archive/data.pkl", pickle.dumps(Boom()))
        archive.writestr("archive/version", b"3\n")
    data = stream.getvalue()
    return data if rng.random() < 0.5 else data[: rng.randrange(len(data))]


def safetensors_bytes(tensors: dict[str, torch.Tensor], rng: Random) -> bytes:
    """A safetensors file with its header bent, its length a lie, or its bytes broken."""
    data = save(tensors)
    (size,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    kind = rng.random()
    if kind < 0.6:
        new = json_bytes(header, rng)
        return struct.pack("<Q", len(new)) + new + body
    if kind < 0.8:
        lie = rng.choice((0, 1, 2**60, 2**64 - 1, size - 1, size + 1, len(data)))
        return struct.pack("<Q", lie) + data[8:]
    return broken(data, rng)


def torch_bytes(tensors: dict[str, torch.Tensor], rng: Random) -> bytes:
    """A torch file: of tensors alone, of more, of code, or broken."""
    stream = BytesIO()
    content = rng.choice((tensors, {"model": tensors}, {"model": 3}, [1], {"a": Boom()}, Boom()))
    torch.save(content, stream, _use_new_zipfile_serialization=rng.random() < 0.7)
    data = stream.getvalue()
    return data if rng.random() < 0.4 else broken(data, rng)


def bent_tensors(tensors: dict[str, Any], rng: Random) -> dict[Any, Any]:
    """A state dict with some entries renamed, reshaped, retyped, lost or poisoned."""
    found: dict[Any, Any] = dict(tensors)
    for _ in range(rng.choice((1, 1, 2, 5))):
        name = rng.choice(list(found))
        tensor = found[name]
        changes = {
            "lost": lambda n: found.pop(n),
            "renamed": lambda n: found.update({rng.choice((*TEXTS, 3, None)): found.pop(n)}),
            "prefixed": lambda n: found.update({f"module.{n}": found[n]}),
            "odd": lambda n: found.update({n: value(rng)}),
        }
        plain = isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided
        plain = plain and tensor.dtype == torch.float32 and not tensor.is_meta
        if plain and tensor.numel() and tensor.ndim:
            kind = rng.choice((torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn))
            changes |= {
                "cut": lambda n, t=tensor: found.update({n: t[..., :-1]}),
                "flat": lambda n, t=tensor: found.update({n: t.flatten()}),
                "scalar": lambda n, t=tensor: found.update({n: t.flatten()[0]}),
                "typed": lambda n, t=tensor, k=kind: found.update({n: t.to(k)}),
                "sparse": lambda n, t=tensor: found.update({n: t.to_sparse()}),
                "nan": lambda n, t=tensor: found.update({n: t * float("nan")}),
                "huge": lambda n, t=tensor: found.update({n: t * 1e30}),
                "empty": lambda n, t=tensor: found.update({n: t[:0]}),
                "meta": lambda n, t=tensor: found.update({n: t.to("meta")}),
            }
        changes[rng.choice(list(changes))](name)
        if not found:
            break
    return found
