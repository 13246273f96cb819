"""README's Python blocks run, in order, and print what they say they print."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


def test_readme_blocks_run_and_print_what_they_say() -> None:
    names: dict[str, object] = {}
    printed = ""
    blocks = BLOCK.findall(README.read_text(encoding="utf-8"))
    assert any(kind == "text" for kind, _ in blocks)
    for kind, text in blocks:
        if kind == "text":
            assert printed == text
            continue
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            exec(text, names)
        printed = stream.getvalue()


def test_readme_starts_with_the_two_commands() -> None:
    first, second = README.read_text(encoding="utf-8").splitlines()[:2]
    assert first.startswith("    make demo")
    assert second.startswith("    make test")
