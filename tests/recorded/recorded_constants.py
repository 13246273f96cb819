"""The numbers that are choices: every committed table of results was made with these."""

from __future__ import annotations

from collections.abc import Callable
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
        return {
            key: value
            for key, value in sorted(module.items())
            if key.isupper() and _made_of_numbers(value)
        }

    return answer


def _made_of_numbers(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_made_of_numbers, value))
    return isinstance(value, (int, float, str))


def _modules() -> list[str]:
    return [
        f"{stage.__name__}.{found.name}"
        for stage in STAGES
        for found in iter_modules(stage.__path__)
    ]


CASES: dict[str, Callable[[], Any]] = {
    name.removeprefix("imir_detect."): numbers_of(name) for name in _modules() if numbers_of(name)()
}
