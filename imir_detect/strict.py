"""Files from outside, read strictly: a regular file, honest JSON, and the shape asked for.

JSON is strict on reading and on writing: UTF-8, no NaN or infinity, no name twice in one object, no
number too large for a float, no nesting without end. What a reader needs of a file is said as a
shape, and every place where the file departs from it is named at once.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imir_detect.errors import InvalidArgumentError, some

LARGEST = 2**30  # bytes of a JSON file; a report of a model of a thousand heads has a tenth of it
DIGITS = 40  # of a whole number


def check_regular(path: Path | str) -> int:
    """The size of a regular file, in bytes. Raises OSError for anything else: a pipe or a device
    is never opened, which could wait for ever."""
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError("it is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise OSError("it is no regular file")
    return found.st_size


def read_file(path: Path | str, *, largest: int | None = None) -> bytes:
    """The bytes of a regular file. Raises OSError or ValueError."""
    size = check_regular(path)
    if largest is not None and size > largest:
        raise OSError(f"{size} bytes, more than {largest}")
    return Path(path).read_bytes()


def read_json(path: Path | str) -> Any:
    """What a JSON file holds. Raises OSError or ValueError."""
    return parse_json(read_file(path, largest=LARGEST))


def parse_json(data: bytes | str) -> Any:
    """What strict JSON says. Raises ValueError.

    >>> parse_json('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    >>> parse_json('{"a": NaN}')
    Traceback (most recent call last):
    ValueError: NaN is no JSON
    """
    text = data.decode("utf-8") if isinstance(data, bytes) else data
    try:
        return json.loads(
            text,
            object_pairs_hook=_no_name_twice,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
    except RecursionError:
        raise ValueError("nested without end") from None


def json_text(value: Any, *, indent: int | None = 1) -> str:
    """Strict JSON with a line end. Raises InvalidArgumentError for what JSON cannot hold."""
    try:
        return json.dumps(value, allow_nan=False, indent=indent) + "\n"
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidArgumentError(
            "this cannot be written as JSON",
            got=f"{type(error).__name__}: {error}",
            wanted="finite numbers, text, lists and mappings",
            todo="mend the value that is none of these",
        ) from error


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:40]!r} stands twice in one object")
    return found


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _whole(text: str) -> int:
    if len(text) > DIGITS:
        raise ValueError(f"a whole number of {len(text)} digits is too large")
    return int(text)


# -- shapes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Is:
    """A value for which something holds, and how that is said."""

    holds: Callable[[Any], bool]
    wanted: str


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


ANY = Is(lambda value: True, "anything")
TEXT = Is(lambda value: isinstance(value, str), "text")
FLAG = Is(lambda value: isinstance(value, bool), "true or false")
WHOLE = Is(_is_whole, "a whole number")
COUNT = Is(lambda value: _is_whole(value) and value >= 0, "a whole number of 0 or more")
POSITIVE = Is(lambda value: _is_whole(value) and value > 0, "a whole number above 0")
NUMBER = Is(_is_number, "a finite number")
SHARE = Is(lambda value: _is_number(value) and 0 <= value <= 1, "a number in [0, 1]")
Shape = Any  # Is; {"name": shape, "name?": shape}; {str: shape}; [shape]; (shape, shape)


def one_of(*allowed: Any) -> Is:
    """One of a few words or numbers."""
    return Is(
        lambda value: any(type(value) is type(a) and value == a for a in allowed),
        "one of " + ", ".join(map(str, allowed)) if len(allowed) > 1 else repr(allowed[0]),
    )


def either(*kinds: Is) -> Is:
    """Any of several simple kinds."""
    return Is(
        lambda value: any(kind.holds(value) for kind in kinds),
        " or ".join(kind.wanted for kind in kinds),
    )


def or_null(kind: Is) -> Is:
    """A simple kind, or nothing."""
    return Is(lambda value: value is None or kind.holds(value), f"{kind.wanted} or null")


def check_shape(value: Any, shape: Shape, what: str = "the file") -> None:
    """Raise ValueError that names every place where a value departs from a shape.

    A mapping of names asks for these names ("name?": it may be absent) and lets others be; {str:
    shape} asks it of every entry; [shape] of every entry of a list; (shape, shape) is a list of
    that length.

    >>> check_shape({"a": [1, "x"]}, {"a": [WHOLE], "b": TEXT})
    Traceback (most recent call last):
    ValueError: a[1] is 'x', not a whole number; b is missing
    """
    wrong = list(misfits(value, shape, "", what))
    if wrong:
        raise ValueError(some(wrong, joint="; "))


def misfits(value: Any, shape: Shape, where: str, what: str) -> Iterator[str]:
    """Where a value departs from a shape, in words."""
    name = where or what
    if isinstance(shape, Is):
        if not shape.holds(value):
            yield f"{name} is {_shown(value)}, not {shape.wanted}"
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            yield f"{name} is {_shown(value)}, not a mapping"
        elif str in shape:
            for key, entry in value.items():
                yield from misfits(entry, shape[str], f"{where}.{key}" if where else key, what)
        else:
            for key, inner in shape.items():
                plain = key.removesuffix("?")
                path = f"{where}.{plain}" if where else plain
                if plain in value:
                    yield from misfits(value[plain], inner, path, what)
                elif plain == key:
                    yield f"{path} is missing"
    elif not isinstance(value, list):
        yield f"{name} is {_shown(value)}, not a list"
    elif isinstance(shape, list):
        for i, entry in enumerate(value):
            yield from misfits(entry, shape[0], f"{where}[{i}]", what)
    elif len(value) != len(shape):
        yield f"{name} has {len(value)} entries, not {len(shape)}"
    else:
        for i, (entry, inner) in enumerate(zip(value, shape, strict=True)):
            yield from misfits(entry, inner, f"{where}[{i}]", what)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None:
        return "null"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
