"""Runs the numbered examples and writes them as executed notebooks: `python make_notebooks.py`.

A cell starts at `# %%`, a text cell at `# %% [markdown]`. What a cell prints, and its last
expression as text, HTML or a picture, become its output. No notebook software is needed.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def cells_of(script: str) -> list[tuple[str, str]]:
    """("markdown" | "code", text) of every cell."""
    parts = re.split(r"^# %%(.*)\n", script, flags=re.MULTILINE)[1:]
    found = []
    for mark, body in zip(parts[::2], parts[1::2], strict=True):
        if "[markdown]" in mark:
            text = re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE)
            found.append(("markdown", text))
        else:
            found.append(("code", body.strip()))
    return found


def run_cell(code: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run one cell; its outputs as a notebook stores them."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    stream = io.StringIO()
    value = None
    with contextlib.redirect_stdout(stream):
        exec(compile(tree, "<cell>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if stream.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": stream.getvalue()})
    if value is not None:
        outputs.append({"output_type": "display_data", "metadata": {}, "data": shown(value)})
    return outputs


def shown(value: Any) -> dict[str, str]:
    """A value as a notebook shows it."""
    data = {"text/plain": repr(value)}
    if hasattr(value, "savefig"):
        stream = io.BytesIO()
        value.savefig(stream, format="png", dpi=80)
        data["image/png"] = base64.b64encode(stream.getvalue()).decode()
    elif callable(getattr(value, "_repr_html_", None)):
        data["text/html"] = value._repr_html_()
    return data


def notebook(script: str) -> dict[str, Any]:
    """The executed notebook of one script."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(cells_of(script)):
        cell: dict[str, Any] = {"id": f"cell-{number}", "cell_type": kind, "metadata": {},
                                "source": text}  # fmt: skip
        if kind == "code":
            cell |= {"execution_count": number, "outputs": run_cell(text, names)}
        cells.append(cell)
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": python}, "nbformat": 4, "nbformat_minor": 5}


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    target = target.resolve()
    for script in sorted(HERE.glob("[0-9]*.py")):
        if "audit" in script.stem:  # these download a model
            continue
        text = script.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)  # what the example writes stays there
            made = notebook(text)
            os.chdir(HERE)
        path = target / f"{script.stem}.ipynb"
        path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"wrote {path.name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "notebooks")
