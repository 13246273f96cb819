"""Checkpoints are found in order and followed: the verdict turns where the model does."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from imir_detect.checkpoints import course, follow_checkpoints, list_checkpoints
from imir_detect.cli import app
from imir_detect.errors import InvalidArgumentError, UnreadableFileError
from imir_detect.zoo import shipped_folder

runner = CliRunner()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two checkpoints: nothing learned after 90 steps, in-weights association after 100."""
    for name, model in (("step-100", "iwl"), ("step-90", "none")):
        shutil.copytree(shipped_folder(model), tmp_path / name)
    (tmp_path / "notes").mkdir()
    (tmp_path / "optimiser.pt").write_bytes(b"no model")
    return tmp_path


def test_checkpoints_are_ordered_by_their_numbers(run: Path) -> None:
    assert [c.name for c in list_checkpoints(run)] == ["step-90", "step-100"]
    shutil.copy(shipped_folder("iwl") / "model.safetensors", run / "model.safetensors")
    (run / "config.json").write_text("{}")
    names = [c.name for c in list_checkpoints(run)]
    assert names == ["step-90", "step-100", run.name]  # the run's own model comes last
    shutil.copy(run / "model.safetensors", run / "state-95.safetensors")
    assert list_checkpoints(run)[0].name == "state-95"


def test_the_course_shows_verdict_and_coordinates(run: Path) -> None:
    reports = dict(follow_checkpoints(run))
    table = course(reports)
    assert table.column("checkpoint") == ["step-90", "step-100"]
    assert table.column("label") == ["none", "iwl"]
    first, last = table
    assert last["in_weights"] > 0.9 > 0.1 > first["in_weights"]
    assert last["associate"] > 3
    effects = [r["effect"] for r in reports["step-100"].coordinates if r["selection"] == "shift 1"]
    assert last["shift"] == max(effects)
    assert last["induction"] == max(reports["step-100"].heads.column("induction"))


def test_the_command_prints_the_course_and_writes_it(run: Path) -> None:
    table, page = run / "course.json", run / "course.html"
    options = ["--checkpoints", "--json", str(table), "--html", str(page)]
    done = runner.invoke(app, ["detect", str(run), *options])
    assert done.exit_code == 0, done.output
    assert "the label goes from none to iwl at step-100" in " ".join(done.output.split())
    assert [row["label"] for row in json.loads(table.read_text())] == ["none", "iwl"]
    assert "2 models compared" in page.read_text(encoding="utf-8")


def test_what_holds_no_checkpoint_says_so(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match=r"no checkpoints in .*side by side"):
        list_checkpoints(run / "notes")
    (run / "step-95").mkdir()
    (run / "step-95" / "config.json").write_text("{}")
    with pytest.raises(InvalidArgumentError, match="checkpoint step-95 could not be analysed"):
        dict(follow_checkpoints(run))


def test_a_name_without_a_network_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imir_detect.checkpoints.hub_answers", lambda: False)
    with pytest.raises(UnreadableFileError, match="neither a folder here nor a network"):
        list_checkpoints("some/model")
