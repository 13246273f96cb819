"""Imports run one way: weights -> frame -> coordinates -> circuits -> pipeline (house.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import imir_detect

PACKAGE = Path(imir_detect.__file__).parent
STAGES = ("weights", "frame", "coordinates", "circuits", "pipeline")
OUTSIDE_STAGES = ("tasks", "zoo", "benchmark", "report", "training", "theory", "models", "cli")


def imported_parts(file: Path) -> set[str]:
    """Second components of every `imir_detect.X` that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "imir_detect" and len(parts) > 1:
                found.add(parts[1])
    return found


def upstream_violations(root: Path) -> list[str]:
    wrong = []
    for index, stage in enumerate(STAGES[:-1]):
        forbidden = {*STAGES[index + 1 :], *OUTSIDE_STAGES}
        for file in sorted((root / stage).rglob("*.py")):
            for part in sorted(imported_parts(file) & forbidden):
                wrong.append(f"{file.relative_to(root)} imports {part}")
    return wrong


def test_no_stage_imports_a_later_one_or_what_stands_outside() -> None:
    assert upstream_violations(PACKAGE) == []


def test_the_check_trips_on_an_upstream_import(tmp_path: Path) -> None:
    (tmp_path / "frame").mkdir()
    (tmp_path / "frame" / "bad.py").write_text("def f():\n    from imir_detect.circuits import x\n")
    assert upstream_violations(tmp_path) == ["frame/bad.py imports circuits"]


def test_only_weights_and_what_builds_models_know_transformer_lens() -> None:
    allowed = {"weights"}
    knowing = {
        file.relative_to(PACKAGE).parts[0]
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("transformer_lens"))
        or (
            isinstance(node, ast.Import)
            and any(alias.name.startswith("transformer_lens") for alias in node.names)
        )
    }
    # Type-checking imports of the bridge's name in training are annotations, not knowledge.
    assert knowing - {"training"} <= allowed
