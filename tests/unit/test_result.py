"""Reports round-trip exactly, are strict JSON, escape what they show, and refuse other files."""

import json
from pathlib import Path
from typing import Any

import pytest

from imir_detect import Report, Table
from imir_detect.errors import InvalidArgumentError, UnreadableFileError

LIMITS = ("</script><b>", '"', "NaN", "\u2028", "")


def odd_report(report: Report) -> Report:
    from dataclasses import replace

    return replace(report, limits=LIMITS)


@pytest.mark.parametrize("name", ["icl", "iwl", "none"])
def test_json_round_trip_is_exact(name: str, shipped: dict[str, Any], tmp_path: Path) -> None:
    report = odd_report(shipped[name][1])
    path = report.to_json(tmp_path / "report.json")
    assert Report.from_json(path) == report

    def fail(text: str) -> None:
        raise AssertionError(text)

    data = json.loads(path.read_text(encoding="utf-8"), parse_constant=fail)
    assert data["limits"] == list(LIMITS)
    assert data["label"] == name


def test_what_is_not_finite_never_reaches_a_file(shipped: dict[str, Any], tmp_path: Path) -> None:
    from dataclasses import replace

    report = replace(shipped["icl"][1], measured={"accuracy": float("inf")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        report.to_json(tmp_path / "report.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1}', '{"format": 7}', "[1]", "nonsense"])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(UnreadableFileError, match="is not a readable report"):
        Report.from_json(path)
    with pytest.raises(UnreadableFileError, match="FileNotFoundError"):
        Report.from_json(tmp_path / "absent")


def test_html_escapes_and_text_names_the_circuit(shipped: dict[str, Any]) -> None:
    report = odd_report(shipped["icl"][1])
    page = report._repr_html_()
    assert "</script><b>" not in page
    assert "&lt;/script&gt;" in page
    assert str(report).startswith("icl (")
    assert "induction: L0H" in str(report)


def test_a_report_has_the_contracts_columns(shipped: dict[str, Any]) -> None:
    report = shipped["icl"][1]
    assert report.heads.columns == (
        "layer",
        "head",
        "previous_token",
        "duplicate_token",
        "induction",
        "copying",
        "suppression",
        "association",
        "role",
    )
    assert report.coordinates.columns == (
        "unit",
        "layer",
        "head",
        "path",
        "selection",
        "effect",
        "cosine",
        "z",
        "predicted",
    )
    assert set(report.probabilities) == {"icl", "iwl", "mixed", "none"}
    assert len(report.heads) == 4
    strengths = [c.strength for c in report.circuits]
    assert strengths == sorted(strengths, reverse=True)


def test_tables_refuse_ragged_rows_and_unknown_columns() -> None:
    with pytest.raises(InvalidArgumentError, match="one entry a column; got \\[1\\]; wanted 2"):
        Table(("a", "b"), [(1,)])
    with pytest.raises(InvalidArgumentError, match="no such column; got 'c'; wanted a, b"):
        Table(("a", "b"), [(1, 2)]).column("c")


def test_tables_become_pandas_and_slices() -> None:
    table = Table(("a", "b"), [(1, None), (2, 0.5)])
    assert len(table[1:]) == 1
    assert "a" in table._repr_html_()
    pandas = pytest.importorskip("pandas")
    assert isinstance(table.to_pandas(), pandas.DataFrame)
    assert list(table.to_pandas()["a"]) == [1, 2]
    gaps = Table(("layer", "z"), [(1, 0.5), (None, None)]).to_pandas()
    assert str(gaps["layer"].dtype) == "Int64"  # not 1.0
    assert str(gaps["z"].dtype) == "float64"


def test_notebooks_get_a_picture_and_terminals_a_table(shipped: dict[str, Any]) -> None:
    pytest.importorskip("jinja2")
    assert 'src="data:image/svg+xml;base64,' in shipped["icl"][1]._repr_html_()
    assert "<style" not in shipped["icl"][1]._repr_html_()  # it would leak into the notebook
    assert "<img" not in shipped["none"][1]._repr_html_()
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=160)
    console.print(shipped["icl"][1])
    text = console.file.getvalue()
    assert text.startswith("icl (0.")
    assert "L0H0, L0H1, L1H0, L1H1" in text


def test_a_table_goes_to_strict_json(tmp_path: Path) -> None:
    table = Table(("a", "b"), [(1, None), (2, 0.5)])
    written = json.loads(table.to_json(tmp_path / "t.json").read_text())
    assert written == [{"a": 1, "b": None}, {"a": 2, "b": 0.5}]
    with pytest.raises(ValueError, match="not JSON compliant"):
        Table(("a",), [(float("nan"),)]).to_json(tmp_path / "n.json")
    assert not (tmp_path / "n.json").exists()
