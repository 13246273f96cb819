"""What the benchmark keeps on disk is checked when it is read; names of no case start nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from imir_detect import ImirError
from imir_detect.benchmark.contract import Budget
from imir_detect.benchmark.run import read_row, run_suite
from imir_detect.benchmark.suites import case_names, case_parts, make_case
from imir_detect.benchmark.trained import _kept
from imir_detect.errors import UnknownNameError, UnreadableFileError
from imir_detect.models.planted_truth import Truth

CASE = "induction-clean/zero/edge"


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The file of a finished run, and what it holds."""
    folder = tmp_path_factory.mktemp("bench")
    budget = Budget(samples=8, draws=2)
    run_suite((CASE,), ("random",), folder=folder, budget=budget, progress=False)
    (file,) = (folder / "runs").glob("*.json")
    return file, json.loads(file.read_text())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"auc": None}, "auc is null, not a finite number"),
        ({"auc": "0.5"}, "auc is '0.5', not a finite number or null"),
        ({"status": "fine"}, "status is 'fine', not one of ok, declined, failed"),
        ({"items": -1}, "items is -1, not a whole number of 0 or more or null"),
        ({"reason": None, "method": 3}, "method is 3, not text; reason is null, not text"),
        ({"top": None}, "top is null, not a finite number"),
        ({"item_labels": "+"}, r"\d+ finite item_scores for 1 item_labels"),
        ({"item_scores": "x"}, "could not convert string to float: 'x'"),
        ({"item_scores": "nan", "item_labels": "+"}, "0 finite item_scores for 1 item_labels"),
        ({"item_scores": "1", "item_labels": "?"}, "1 finite item_scores for 1 item_labels"),
        ({"case": "induction/zero/edge"}, "the row of another run"),
        ({"budget_more": 1}, "unexpected keyword argument"),
    ],
)
def test_a_row_is_checked_field_by_field(
    row: tuple[Path, dict[str, Any]], change: dict[str, Any], text: str, tmp_path: Path
) -> None:
    file = tmp_path / row[0].name
    file.write_text(json.dumps({**row[1], **change}))
    with pytest.raises(UnreadableFileError, match=f"is no run of the benchmark; got .*{text}"):
        read_row(file)
    assert read_row(row[0]) == row[1]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "induction",
        "induction/zero",
        "induction/zero/edge/more",
        "../../x/zero/edge",
        "induction/none/edge",
        "induction/zero/atom",
        "induction+seed/zero/edge",
        "induction+seed1x/zero/edge",
        "induction+seed٣/zero/edge",
        "icl-plain+seed1/zero/edge",
        "induction~/zero/edge",
        "induction~magic/zero/edge",
        "skip~reset/zero/edge",
        "icl-plain/zero/unit",
    ],
)
def test_names_of_no_case_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no such case; got .*; wanted MODEL/ABLATION/GRAN"):
        make_case(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_names_of_cases_are_taken_apart() -> None:
    assert case_parts("induction+seed2/mean/head") == ("induction", 2, "", "mean", "head")
    assert all(len(case_parts(name)) == 5 for name in case_names("full"))


def test_all_wrong_names_are_told_before_anything_runs(tmp_path: Path) -> None:
    folder = tmp_path / "bench"
    with pytest.raises(ImirError) as caught:
        run_suite((CASE, "../x/zero/edge", "a/b"), ("random", "magic"), folder=folder)
    assert [p.what for p in caught.value.problems] == [
        "no such method",
        "no such case",
        "no such case",
    ]
    assert not folder.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "JSONDecodeError"),
        ('{"key": [1], "edges": [[NaN]], "alone": null}', "NaN is no JSON"),
        ("[]", "the file is a list, not a mapping"),
        ('{"key": [1], "edges": [["a"]], "alone": null}', r"edges\[0\]\[0\] is 'a', not a whole"),
        ('{"key": [1], "edges": [], "alone": 3}', "alone is 3, not a list of whole numbers or nu"),
        ('{"key": KEY, "edges": [[10000]], "alone": null}', r"edge 10000 of \d+"),
    ],
)
def test_a_truth_that_was_kept_is_checked(text: str, said: str, tmp_path: Path) -> None:
    patched = make_case(CASE, tmp_path).patched(4)
    file = tmp_path / "truth.json"
    truth = Truth((frozenset(patched.edges[:2]),))
    assert _kept(file, lambda _: truth, patched) == truth
    assert _kept(file, lambda _: pytest.fail("searched again"), patched) == truth
    key = json.dumps(json.loads(file.read_text())["key"])
    file.write_text(text.replace("KEY", key))
    with pytest.raises(UnreadableFileError, match=f"no truth that was searched here; got .*{said}"):
        _kept(file, lambda _: truth, patched)
