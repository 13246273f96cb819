"""Every Python block of README and docs runs, in order, page by page, and prints what it says.

A ```text block right behind a ```python block is that block's output. Blocks that need something
first find it in an HTML comment that starts with "runs first:".
"""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"<!-- runs first:\n(?P<setup>.*?)-->"
    r"|```python\n(?P<code>.*?)```(\s*```text\n(?P<text>.*?)```)?",
    re.DOTALL,
)


def blocks(page: Path) -> list[tuple[str, str | None]]:
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [(m["setup"] or m["code"], m["text"]) for m in found]


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_blocks_run_and_print_what_they_say(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for code, text in blocks(page):
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            exec(compile(code, page.name, "exec"), names)
        if text is not None:
            assert stream.getvalue() == text, f"{page.name} says otherwise:\n{code}"


def test_readme_starts_with_its_commands() -> None:
    lines = PAGES[0].read_text(encoding="utf-8").splitlines()[:3]
    assert [line.split()[:2] for line in lines] == [["make", c] for c in ("demo", "audit", "test")]


def test_readme_and_quickstart_show_output() -> None:
    for page in (PAGES[0], ROOT / "docs" / "quickstart.md"):
        assert any(text for _, text in blocks(page))
