"""Imports run one way: weights -> frame -> coordinates -> circuits -> pipeline."""

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


def runtime_imports(file: Path) -> set[str]:
    """First components of the modules that a file imports when it runs: what stands under
    `if TYPE_CHECKING` names a type and loads nothing."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in names_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").split(".")[0])
    return found


def test_only_the_first_stage_loads_transformer_lens() -> None:
    loading = {
        file.relative_to(PACKAGE).parts[0]
        for file in PACKAGE.rglob("*.py")
        if "transformer_lens" in runtime_imports(file)
    }
    assert loading == {"weights"}
