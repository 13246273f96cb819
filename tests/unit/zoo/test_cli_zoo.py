"""`imir-detect zoo`: lists, shows and checks what lies in a folder."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from imir_detect.cli import app
from imir_detect.errors import ImirError
from imir_detect.zoo import HOME

runner = CliRunner()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("iwl", "none"):
        shutil.copytree(HOME / name, tmp_path / name)
    return tmp_path


def test_list_names_every_model_with_its_label(folder: Path) -> None:
    done = runner.invoke(app, ["zoo", "list", "--folder", str(folder)])
    assert done.exit_code == 0, done.output
    row = next(line for line in done.output.splitlines() if "iwl" in line)
    assert row.split()[:4] == ["iwl", "iwl", "0.00", "1.00"]
    quiet = runner.invoke(app, ["zoo", "list", "--quiet", "--folder", str(folder)])
    assert quiet.output == "iwl\nnone\n"


def test_show_prints_the_card(folder: Path) -> None:
    done = runner.invoke(app, ["zoo", "show", "iwl", "--folder", str(folder)])
    assert json.loads(done.output)["label"] == "iwl"


def test_check_names_the_card_that_is_not_so(folder: Path) -> None:
    done = runner.invoke(app, ["zoo", "check", "--folder", str(folder)])
    assert done.output == "iwl: as its card says\nnone: as its card says\n"
    card = json.loads((folder / "none" / "card.json").read_text())
    (folder / "none" / "card.json").write_text(json.dumps({**card, "label": "icl"}))
    done = runner.invoke(app, ["zoo", "check", "none", "--folder", str(folder)])
    assert "none: label: card icl, measured none" in done.output
    assert isinstance(done.exception, ImirError)
    assert "got 1 of 1" in str(done.exception)


def test_a_card_whose_knobs_no_task_has_is_told(folder: Path) -> None:
    card = json.loads((folder / "none" / "card.json").read_text())
    for knobs, text in (({"name": "x"}, "a knob that no task has"), ({"x": 1}, "no such knobs")):
        card["task"]["knobs"] = knobs
        (folder / "none" / "card.json").write_text(json.dumps(card))
        done = runner.invoke(app, ["zoo", "check", "none", "--folder", str(folder)])
        assert isinstance(done.exception, ImirError)
        assert text in str(done.exception)
    del card["task"]
    (folder / "none" / "card.json").write_text(json.dumps(card))
    done = runner.invoke(app, ["zoo", "check", "none", "--folder", str(folder)])
    assert "the card names no task" in str(done.exception)
