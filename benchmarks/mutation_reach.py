"""Which tests reach which line of the stages, and what each costs: by coverage, in CPU seconds."""

from __future__ import annotations

import ast
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mutants import Mutant

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "imir_detect"
STAGES = ("frame", "coordinates", "circuits")
RECORDED = "tests/recorded/test_recorded.py::test_the_answer_is_the_recorded_one["
MAP = ROOT / "build" / "mutation" / "reach.json"


class Recorder:
    """A pytest plugin: lines by test, or by shared fixture, and the CPU seconds of both."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.stack = [""]
        self.cost: dict[str, float] = defaultdict(float)
        self.fixtures: dict[str, list[str]] = {}
        self.last = time.process_time()

    def _switch(self) -> None:
        now = time.process_time()
        self.cost[self.stack[-1]] += now - self.last
        self.last = now
        self.coverage.switch_context(self.stack[-1])

    @contextmanager
    def _within(self, name: str) -> Iterator[None]:
        self._switch()
        self.stack.append(name)
        self.coverage.switch_context(name)
        yield
        self._switch()
        self.stack.pop()
        self.coverage.switch_context(self.stack[-1])

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        with self._within(item.nodeid):
            yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            yield
            return
        with self._within(shared_name(fixturedef)):
            yield

    def pytest_collection_finish(self, session: Any) -> None:
        for item in session.items:
            known = getattr(item, "_fixtureinfo", None)
            found = known.name2fixturedefs.values() if known else ()
            self.fixtures[item.nodeid] = sorted(
                {shared_name(f) for several in found for f in several if f.scope != "function"}
            )


def shared_name(fixture: Any) -> str:
    return f"fixture {fixture.baseid}::{fixture.argname}"


def cover(chosen: list[str]) -> None:
    """Run the tests (all; those chosen are added to the map that stands) and keep the map."""
    import coverage

    record = coverage.Coverage(
        data_file=None, source=[str(PACKAGE / stage) for stage in STAGES], config_file=False
    )
    record.start()
    recorder = Recorder(record)
    code = pytest.main(["-q", "-o", "addopts=", *chosen], plugins=[recorder])
    record.stop()
    data = record.get_data()
    known = json.loads(MAP.read_text(encoding="utf-8")) if chosen and MAP.exists() else {}
    cost = known.get("cost", {}) | recorder.cost
    fixtures = known.get("fixtures", {}) | recorder.fixtures
    lines: dict[str, dict[str, list[str]]] = {}
    files = {
        file: hashlib.sha256((PACKAGE / file).read_bytes()).hexdigest() for file in stage_files()
    }
    for file, found in known.get("lines", {}).items():
        if known.get("files", {}).get(file) != files.get(file):
            continue  # its lines are others now
        lines[file] = {n: [c for c in cs if c not in recorder.cost] for n, cs in found.items()}
    for path in data.measured_files():
        own = lines.setdefault(Path(path).relative_to(PACKAGE).as_posix(), {})
        for number, contexts in data.contexts_by_lineno(path).items():
            own.setdefault(str(number), []).extend(c for c in contexts if c)
    MAP.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"lines": lines, "cost": cost, "fixtures": fixtures, "files": files})
    MAP.write_text(text, encoding="utf-8")
    print(f"pytest ended with {code}; {len(recorder.fixtures)} tests")


class Reach:
    """The tests that reach a mutant, cheapest first, within a cap of CPU seconds."""

    def __init__(self) -> None:
        known = json.loads(MAP.read_text(encoding="utf-8"))
        self.cost, self.fixtures = known["cost"], known["fixtures"]
        users = defaultdict(list)
        for test, names in self.fixtures.items():
            for name in names:
                users[name].append(test)
        self.lines: dict[str, dict[int, set[str]]] = {}
        for file, lines in known["lines"].items():
            self.lines[file] = {
                int(line): {t for c in contexts for t in users.get(c, [c])}
                for line, contexts in lines.items()
            }
        self.uses = names_used()

    def tests(self, mutant: Mutant) -> set[str]:
        tree = ast.parse((PACKAGE / mutant.file).read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        if any(f.body[0].lineno <= mutant.line <= (f.end_lineno or 0) for f in functions):
            found = self._between(mutant.file, *mutant.lines)
            return found or self._between(mutant.file, 0, 10**6)
        # A statement that runs at import (by the test that happens to be the first): by what uses
        # the names that it defines, and by the list of numbers that are choices.
        module = mutant.file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        listed = f"{RECORDED}constants: {module}]"
        found = {listed} & set(self.cost)
        for node in functions:
            if node.lineno <= mutant.line < node.body[0].lineno:
                return self._between(mutant.file, node.body[0].lineno, node.end_lineno or 0)
        for node in tree.body:
            if node.lineno <= mutant.line <= (node.end_lineno or 0):
                target = getattr(node, "target", None) or getattr(node, "targets", [None])[0]
                name = getattr(node, "name", getattr(target, "id", ""))
                for file, line in self.uses.get(name, ()):
                    found |= self._between(file, line, line)
        return found or self._between(mutant.file, 0, 10**6)

    def _between(self, file: str, first: int, last: int) -> set[str]:
        lines = self.lines.get(file, {})
        return {t for k, tests in lines.items() if first <= k <= last for t in tests}

    def chosen(self, mutant: Mutant, cap: float) -> tuple[list[str], float]:
        """Recorded answers first, then tests of the same name as the file, then by cost; at least
        one."""
        stem = Path(mutant.file).stem

        def rank(test: str) -> float:
            own = f"test_{stem}" in test or (stem == "__init__" and "circuits/" in test)
            share = 0.01 if test.startswith(RECORDED) else 0.2 if own else 1.0
            return self._cost(test, set()) * share

        chosen: list[str] = []
        total, built = 0.0, set[str]()
        for test in sorted(self.tests(mutant), key=lambda t: (rank(t), t)):
            more = self._cost(test, built)
            if chosen and total + more > cap:
                continue
            chosen.append(test)
            total += more
            built |= set(self.fixtures.get(test, ()))
        return chosen, total

    def _cost(self, test: str, built: set[str]) -> float:
        shared = [f for f in self.fixtures.get(test, ()) if f not in built]
        return 0.01 + self.cost.get(test, 1.0) + sum(self.cost.get(f, 0.0) for f in shared)


def names_used() -> dict[str, list[tuple[str, int]]]:
    """Where in the stages each name is read."""
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for file in stage_files():
        for node in ast.walk(ast.parse((PACKAGE / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found[node.id].append((file, node.lineno))
    return found


def stage_files() -> list[str]:
    files = (file for stage in STAGES for file in sorted((PACKAGE / stage).rglob("*.py")))
    return [file.relative_to(PACKAGE).as_posix() for file in files]
