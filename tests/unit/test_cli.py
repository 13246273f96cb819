"""The command line: what it prints, what it writes, how it fails."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from imir_detect.cli import app, main

runner = CliRunner()


def test_detect_prints_the_circuit_and_writes_the_report(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    done = runner.invoke(app, ["detect", "icl", "--json", str(target)])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("icl (")
    assert done.output.count("\n") > 5
    assert "induction" in done.output
    assert json.loads(target.read_text())["label"] == "icl"


def test_nothing_is_cut_at_80_columns_nor_wrapped_in_a_pipe() -> None:
    done = runner.invoke(app, ["detect", "icl"], env={"COLUMNS": "80"})
    assert "\u2026" not in done.output
    lines = done.output.splitlines()
    head = next(line for line in lines if line.startswith("head "))
    assert head.split()[1:] == [
        "previous", "duplicate", "induction", "copies", "suppr.", "assoc.", "role",
    ]  # fmt: skip
    assert lines[-1].split()[0] == "L1H1"
    assert any(line.startswith("  induction: L0H") and "nats: shift" in line for line in lines)
    assert max(len(line.rstrip()) for line in lines if line.startswith("L")) <= 80
    zoo = runner.invoke(app, ["zoo", "list"], env={"COLUMNS": "80"}).output
    assert "\u2026" not in zoo
    assert "dev-rotary-none-recall-5a" in zoo


def test_of_many_heads_those_with_a_part_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from report_cases import big_report
    from rich.console import Console

    from imir_detect.cli.detect import MOST_HEADS, _heads

    Console(width=80, highlight=False).print(_heads(big_report(4, 12, 4)))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("L")]
    assert len(lines) == MOST_HEADS
    assert any("L2H3 " in line and "previous_token" in line for line in lines)


def test_lists_become_json(tmp_path: Path) -> None:
    wanted = {("support",): "name", ("tasks",): "task", ("zoo", "list"): "model"}
    for command, column in wanted.items():
        target = tmp_path / f"{command[0]}.json"
        done = runner.invoke(app, [*command, "--json", str(target)])
        assert done.exit_code == 0, done.output
        assert len({row[column] for row in json.loads(target.read_text())}) > 10


def test_detect_writes_a_page_and_prints_nothing_but_the_label(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = runner.invoke(app, ["detect", "iwl", "--quiet", "--html", str(page)])
    assert done.output == "iwl\n"
    assert "Answers from its weights" in page.read_text(encoding="utf-8")


def test_compare_tells_saved_reports_apart(tmp_path: Path) -> None:
    files = []
    for name in ("none", "iwl"):
        files.append(str(tmp_path / f"{name}.json"))
        assert runner.invoke(app, ["detect", name, "--json", files[-1]]).exit_code == 0
    page, table = tmp_path / "page.html", tmp_path / "table.json"
    done = runner.invoke(app, ["compare", *files, "--html", str(page), "--json", str(table)])
    assert done.exit_code == 0, done.output
    assert "the label goes from none to iwl at iwl" in " ".join(done.output.split())
    assert [row["label"] for row in json.loads(table.read_text())] == ["none", "iwl"]
    assert "2 models compared" in page.read_text(encoding="utf-8")
    assert runner.invoke(app, ["compare", *files, "--quiet"]).output == "none: none\niwl: iwl\n"


def test_graph_prints_edges_and_writes_every_candidate(tmp_path: Path) -> None:
    table = tmp_path / "edges.json"
    options = ["--nodes", "12", "--json", str(table), "--html", str(tmp_path / "graph.html")]
    done = runner.invoke(app, ["graph", "mixed", *options])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("causal graph of 12 positions, read from weights: ")
    rows = json.loads(table.read_text())
    assert len(rows) == 2 * 11
    edges = [f"{row['parent']}->{row['child']}" for row in rows if row["edge"]]
    assert edges
    page = (tmp_path / "graph.html").read_text(encoding="utf-8")
    assert page.count('<path class="edge"') == len(edges)
    quiet = runner.invoke(app, ["graph", "mixed", "--nodes", "12", "--quiet"]).output.split()
    assert sorted(quiet) == sorted(edges)


def test_theory_checks_the_first_theorem(tmp_path: Path) -> None:
    table = tmp_path / "rows.json"
    done = runner.invoke(app, ["theory", "confinement", "--json", str(table)])
    assert done.exit_code == 0, done.output
    holds, *broken = [row["outside share"] for row in json.loads(table.read_text())]
    assert holds < 1e-20
    assert min(broken) > 1e-5
    assert runner.invoke(app, ["theory"]).exit_code == 2


def test_train_saves_a_model_that_detect_reads(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    options = ["--blocks", "2", "--common", "6", "--rare", "6", "--steps", "3"]
    options += ["--width", "16", "--heads", "1"]
    done = runner.invoke(app, ["train", str(folder), *options])
    assert done.exit_code == 0, done.output
    assert {f.name for f in folder.iterdir()} == {"model.safetensors", "card.json"}
    assert runner.invoke(app, ["detect", str(folder)]).output.startswith("none (")


def test_tasks_are_listed_and_shown() -> None:
    listed = runner.invoke(app, ["tasks"])
    assert listed.exit_code == 0, listed.output
    assert "recall" in listed.output
    assert "k_hop" in listed.output
    shown = runner.invoke(app, ["tasks", "show", "recall"])
    assert shown.exit_code == 0, shown.output
    assert "Ceiling" in shown.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["tasks", "show", "recal"], "error: no such task"),
        (["detect", "no-such"], "error: no model 'no-such' could be loaded; got"),
        (["compare", "x.json"], "error: x.json is not a readable report"),
        (["compare", "x", "x"], "error: a report is given twice; got x; wanted"),
        (["detect", "icl", "--context", "1"], "error: this context does not fit the model"),
        (["train", "x", "--blocks", "0"], "error: these knobs of recall do not fit"),
    ],
)
def test_errors_take_one_line_and_exit_code_1(
    arguments: list[str], text: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "imir_detect", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(text), done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr + done.stdout
    assert not list(tmp_path.iterdir())


def test_quiet_leaves_the_label_wherever_it_stands() -> None:
    for arguments in (["--quiet", "detect", "none"], ["detect", "none", "--quiet"]):
        done = runner.invoke(app, arguments)
        assert done.exit_code == 0, done.output
        assert done.output == "none\n"


def test_debug_shows_where_an_error_came_from(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "imir_detect", "detect", "no-such", "--debug"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "UnreadableFileError: no model 'no-such' could be loaded" in done.stderr


def test_what_nobody_foresaw_takes_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("imir_detect.pipeline.detect_circuits", broken)
    monkeypatch.setattr(sys, "argv", ["imir-detect", "detect", "icl"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    expected = "error: unexpected ZeroDivisionError: division by zero; next step: run it with"
    assert capsys.readouterr().err == f"{expected} --debug\n"


def test_arguments_that_do_not_parse_leave_with_2() -> None:
    assert runner.invoke(app, ["detect"]).exit_code == 2
    assert runner.invoke(app, ["detect", "icl", "--contexts", "3"]).exit_code == 2


def test_tab_completes_models_tasks_and_commands(tmp_path: Path) -> None:
    def offered(line: str, word: int) -> list[str]:
        setting = {"_IMIR_DETECT_COMPLETE": "complete_bash", "COMP_WORDS": line}
        done = runner.invoke(
            app, [], prog_name="imir-detect", env={**setting, "COMP_CWORD": str(word)}
        )
        return done.output.split()

    assert offered("imir-detect detect i", 2) == ["icl", "iwl"]
    assert offered("imir-detect tasks show k_", 3) == ["k_hop"]
    assert offered("imir-detect co", 1) == ["compare"]


def test_brackets_in_a_terminals_list_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from imir_detect.cli import tasks

    terminal = Console(width=80, force_terminal=True, record=True, file=io.StringIO())
    monkeypatch.setattr(tasks, "console", terminal)
    assert runner.invoke(app, ["tasks"]).exit_code == 0
    text = " ".join(terminal.export_text().split())
    assert "Blocks [x pi(x)], then an item" in text
