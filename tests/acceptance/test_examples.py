"""Every numbered example runs and shows what it promises."""

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "examples"
# Audits need a download: `make audit` runs the one, and CI runs that.
SCRIPTS = [p for p in sorted(ROOT.glob("[0-9]*.py")) if "audit" not in p.stem]
PROMISED = {
    "01_detect": ["induction works", "'previous_token', 'induction', 'induction']"],
    "03_checkpoints": ["['none', ", "'icl']", "page written to course.html"],
    "04_ablate": ["before 1.00, ablated 0.", "after 1.00", "(4, 17, 17)"],
    "05_figures": ["plotly 1", "L0H0"],
    "06_my_model": ["reached: True", "icl {'accuracy': "],
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_an_example_shows_what_it_promises(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tools = runpy.run_path(str(ROOT / "make_notebooks.py"), run_name="tools")
    made = tools["notebook"](script.read_text(encoding="utf-8"))
    assert made["cells"][0]["cell_type"] == "markdown"
    assert "You will see" in made["cells"][0]["source"]
    printed = "".join(
        output.get("text", "") for cell in made["cells"] for output in cell.get("outputs", [])
    )
    for text in PROMISED[script.stem]:
        assert text in printed
    json.dumps(made, allow_nan=False)


def test_committed_notebooks_are_those_of_the_scripts() -> None:
    tools = runpy.run_path(str(ROOT / "make_notebooks.py"), run_name="tools")
    for script in SCRIPTS:
        stored = ROOT / "notebooks" / f"{script.stem}.ipynb"
        cells = json.loads(stored.read_text(encoding="utf-8"))["cells"]
        expected = tools["cells_of"](script.read_text(encoding="utf-8"))
        assert [(c["cell_type"], c["source"]) for c in cells] == expected, "run make_notebooks.py"
    assert {p.stem for p in (ROOT / "notebooks").iterdir()} == set(PROMISED)
