"""Docstrings have one order: what, formula and convention, parameters with shapes and units,
errors, example. The order is asked of the whole package, the parts of what `dir` shows."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import imir_detect

PACKAGE = Path(imir_detect.__file__).parent
NAMES = [name for name in imir_detect.__all__ if name != "__version__"]
ERRORS = re.compile(r"^(Raises|Refuses)\b|[.;:] (Raises|Refuses)\b")
IN_NATS = re.compile(r"\b(effects?|loss(es)?)\b", re.IGNORECASE)
SHAPED = re.compile(r"\b(Float|Int|Bool)\[")


def parts(text: str) -> list[str]:
    """What each paragraph is for: "example", "errors" or "words"."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        errors = any(ERRORS.search(line) for line in paragraph.splitlines())
        found.append("example" if ">>>" in paragraph else "errors" if errors else "words")
    return found


def disorder(text: str) -> list[str]:
    """What is out of order in a docstring."""
    wrong = []
    first = re.split(r"\n\s*\n", text)[0].strip()
    if not first.endswith((".", ":", "?")):
        wrong.append("does not start with a sentence")
    kinds = parts(text)
    if "example" in kinds and "words" in kinds[kinds.index("example") :]:
        wrong.append("goes on after its example")
    if "example" in kinds and "errors" in kinds[kinds.index("example") :]:
        wrong.append("names errors after its example")
    last = max((i for i, kind in enumerate(kinds) if kind == "errors"), default=len(kinds))
    if "words" in kinds[last + 1 :]:
        wrong.append("goes on after its errors")
    return wrong


def lacks(value: Any) -> list[str]:
    """What the docstring of a public function or class does not have, though it applies."""
    text = inspect.getdoc(value) or ""
    wrong = disorder(text)
    kinds = parts(text)
    if "example" not in kinds:
        wrong.append("has no example")
    parameters = inspect.signature(value).parameters
    if inspect.isfunction(value) and parameters and "errors" not in kinds:
        wrong.append("does not say what it raises")
    for name in parameters:
        if name not in ("args", "kwargs") and not re.search(rf"\b{name}\b", text):
            wrong.append(f"does not name {name}")
    annotations = " ".join(str(p.annotation) for p in parameters.values())
    if SHAPED.search(annotations) and not re.search(r"\(\w+,|\w+\)", text):
        wrong.append("states no shape")
    prose = text.split(">>>")[0]
    if IN_NATS.search(prose) and "nats" not in prose:
        wrong.append("states no unit")
    return wrong


def definitions() -> Iterator[tuple[str, str]]:
    """Every public function and class of the package with its docstring."""
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                text = ast.get_docstring(node)
                if text is not None:
                    yield f"{file.relative_to(PACKAGE)}:{node.name}", text


def test_every_docstring_of_the_package_is_in_order() -> None:
    found = list(definitions())
    assert len(found) > 500
    assert [f"{where} {what}" for where, text in found for what in disorder(text)] == []


@pytest.mark.parametrize("name", NAMES)
def test_public_names_have_every_part_that_applies(name: str) -> None:
    assert lacks(getattr(imir_detect, name)) == []


@pytest.mark.parametrize("name", [n for n in NAMES if inspect.isclass(getattr(imir_detect, n))])
def test_members_of_public_classes_say_what_they_are(name: str) -> None:
    members = vars(getattr(imir_detect, name)).items()
    silent = [
        key
        for key, member in members
        if not key.startswith("_")
        and (callable(member) or isinstance(member, property | classmethod | staticmethod))
        and not (inspect.getdoc(getattr(member, "__func__", member)) or "").strip()
    ]
    assert silent == []


def late_words(a: int) -> int:
    """Adds `a`.

    Raises ValueError never.

    And it goes on.
    """
    return a


def early_example(a: int) -> int:
    """Adds `a`.

    >>> early_example(1)
    1

    Raises ValueError never.
    """
    return a


def bare(a: int, b: int) -> int:
    """adds a loss"""
    return a + b


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (late_words, ["goes on after its errors", "has no example"]),
        (early_example, ["names errors after its example"]),
        (
            bare,
            [
                "does not start with a sentence",
                "has no example",
                "does not say what it raises",
                "does not name b",
                "states no unit",
            ],
        ),
    ],
)
def test_the_check_trips(wrong: Callable[..., Any], what: list[str]) -> None:
    assert lacks(wrong) == what
