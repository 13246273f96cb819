"""Writes docs/api.md from docstrings: `python docs/make_api.py`. A test fails when it is old."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import imir_detect

PAGE = Path(__file__).parent / "api.md"
HEAD = """# API

Written by `python docs/make_api.py` from the docstrings; a test fails when it is out of date.

## `imir_detect`

What `dir(imir_detect)` shows, and what stays: none of it changes without a line in the change log.

"""
# Modules that a reader may want beyond the front door, and what for.
MODULES = {
    "checkpoints": "A model over its checkpoints",
    "report.compare": "Reports side by side",
    "report.figures": "Figures and the tables behind them",
    "report.tables": "Tidy tables of a report",
    "report.studies": "Tidy tables of studies",
    "report.plates": "Pages of studies",
    "training.loop": "Training small models",
    "training.curriculum": "Training on easier tasks first",
    "training.recipes": "How the tasks are learned",
    "training.tracking": "Coordinates over training",
    "circuits.eliminate": "Algorithm 1",
    "circuits.causal_graph": "Latent causal graphs",
    "theory.causal_reading": "Latent causal graphs from data",
    "tasks.latent_graph": "Graphs of one's own",
    "weights.native": "Small models from a specification",
    "errors": "Errors",
}


def page() -> str:
    """The page's text."""
    parts = [HEAD]
    for name in imir_detect.__all__:
        if name != "__version__":
            parts.append(_entry(getattr(imir_detect, name), "###", whole=True))
    for place, title in MODULES.items():
        module = import_module(f"imir_detect.{place}")
        parts.append(
            f"## {title}: `imir_detect.{place}`\n\n{_paragraph(inspect.getdoc(module))}\n\n"
        )
        for _, value in _own(module):
            parts.append(_entry(value, "###", whole=False))
    return "".join(parts).rstrip() + "\n"


def _own(module: Any) -> list[tuple[str, Any]]:
    """Public functions and classes that a module defines, in its order."""
    found = [
        (name, value)
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
        and value.__doc__
    ]
    return sorted(found, key=lambda pair: inspect.getsourcelines(pair[1])[1])


def _entry(value: Any, level: str, *, whole: bool) -> str:
    text = inspect.getdoc(value) or ""
    body = _text(text) if whole else _paragraph(text)
    lines = [f"{level} `{value.__name__}`\n\n", f"    {value.__name__}{_signature(value)}\n\n"]
    lines.append(f"{body}\n\n")
    if inspect.isclass(value) and whole:
        for name, member in _members(value):
            said = _paragraph(inspect.getdoc(member))
            lines.append(f"- `{_member(name, member)}`{': ' if said else ''}{said}\n")
        lines.append("\n")
    return "".join(lines)


def _signature(value: Any) -> str:
    """The signature as the source has it; defaults that are no literals read "..."."""
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except ValueError:
        return ""
    parts = []
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and "*" not in parts and not _starred(parameters):
            parts.append("*")
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(star + p.name + _annotation(p) + _default(p))
    gives = "" if inspect.isclass(value) else _returned(value)
    line = f"({', '.join(parts)}){gives}"
    if len(line) < 76:
        return line
    return "(\n        " + ",\n        ".join(parts) + f",\n    ){gives}"


def _returned(value: Any) -> str:
    kind = value.__annotations__.get("return", "")
    return f" -> {kind}" if kind not in ("", None, "None") else ""


def _starred(parameters: list[inspect.Parameter]) -> bool:
    return any(p.kind is p.VAR_POSITIONAL for p in parameters)


def _annotation(p: inspect.Parameter) -> str:
    if p.annotation is p.empty:
        return ""
    text = getattr(p.annotation, "__forward_arg__", p.annotation)
    return f": {text if isinstance(text, str) else getattr(text, '__name__', text)}"


def _default(p: inspect.Parameter) -> str:
    if p.default is p.empty:
        return ""
    simple = p.default is None or isinstance(p.default, bool | int | float | str | tuple)
    return f" = {p.default!r}" if simple else " = ..."


def _members(kind: type) -> list[tuple[str, Any]]:
    public = [(n, m) for n, m in vars(kind).items() if not n.startswith("_")]
    known = (property, classmethod, staticmethod)
    return [(n, m) for n, m in public if inspect.isfunction(m) or isinstance(m, known)]


def _member(name: str, member: Any) -> str:
    inner = getattr(member, "__func__", member)
    if isinstance(member, property):
        return f".{name}"
    names = [p for p in inspect.signature(inner).parameters if p not in ("self", "cls")]
    return f".{name}({', '.join(names)})"


def _paragraph(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())


def _text(text: str) -> str:
    """A docstring as Markdown: examples become blocks."""
    return re.sub(
        r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)+",
        lambda found: f"```pycon\n{found[0].rstrip()}\n```\n",
        text,
        flags=re.MULTILINE,
    ).rstrip()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
