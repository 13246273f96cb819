"""The numbers that are choices (every committed table of results was made with these), and what
dataclasses promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import imir_detect.circuits
import imir_detect.coordinates
import imir_detect.frame

STAGES = (imir_detect.frame, imir_detect.coordinates, imir_detect.circuits)


def numbers_of(name: str) -> Callable[[], Any]:
    def answer() -> Any:
        module = vars(import_module(name))
        numbers = {
            key: repr(value)  # word for word: a tolerance would let the smallest pass
            for key, value in sorted(module.items())
            if key.isupper() and _made_of_numbers(value) and " at 0x" not in repr(value)
        }
        own = {k: v for k, v in module.items() if isinstance(v, type) and v.__module__ == name}
        classes = {k: _promises(v) for k, v in sorted(own.items()) if is_dataclass(v)}
        return numbers | classes

    return answer


def _promises(made: Any) -> Any:
    """Whether a dataclass is frozen and ordered; of fields, the default and what is compared."""
    settings = made.__dataclass_params__
    return {
        "frozen": settings.frozen,
        "order": settings.order,
        "fields": {f.name: [_default(f), f.compare, f.repr] for f in fields(made)},
    }


def _default(entry: Any) -> str:
    return "none" if entry.default is MISSING else repr(entry.default)


def _made_of_numbers(value: Any) -> bool:
    if isinstance(value, (tuple, dict)):
        return all(map(_made_of_numbers, value))
    made = is_dataclass(value) and not isinstance(value, type)
    return made or isinstance(value, (int, float, str))


def _modules() -> list[str]:
    return [
        name
        for stage in STAGES
        for name in (
            stage.__name__,
            *(f"{stage.__name__}.{found.name}" for found in iter_modules(stage.__path__)),
        )
    ]


CASES: dict[str, Callable[[], Any]] = {
    name.removeprefix("imir_detect."): numbers_of(name) for name in _modules() if numbers_of(name)()
}
