"""Reports from anywhere: every field that is not what it should be is named, all at once."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from imir_detect import Report
from imir_detect.errors import UnreadableFileError
from imir_detect.report_json import report_fields


@pytest.fixture(scope="module")
def good(shipped: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(shipped["icl"][1].to_dict()))


def at(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with one place changed."""
    data = copy.deepcopy(data)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("format",), 7, "format is 7, not 1"),
        (("format",), True, "format is True, not 1"),
        (("label",), "iwl", "the label is 'iwl', the most probable one 'icl'"),
        (("label",), "both", "label is 'both', not one of icl, iwl, mixed, none"),
        (("probabilities", "icl"), 1.5, r"probabilities.icl is 1.5, not a number in \[0, 1\]"),
        (("probabilities", "iwl"), 0.9, r"the probabilities sum to 1\.\d+, not to 1"),
        (("circuits",), {}, "circuits is a mapping, not a list"),
        (("circuits", 0, "kind"), "magic", r"circuits\[0\].kind is 'magic', not one of induction"),
        (("circuits", 0, "strength"), "1", r"circuits\[0\].strength is '1', not a number in"),
        (("circuits", 0, "heads"), [[0]], r"circuits\[0\].heads\[0\] has 1 entries, not 2"),
        (("circuits", 0, "heads", 0), [9, 9], r"circuits\[0\] has heads that are not listed: .*9"),
        (("circuits", 0, "edges", 0, 0), "sky", r"edges\[0\]\[0\] is 'sky', not a head \[layer"),
        (("circuits", 0, "edges", 0, 2), "Z", r"edges\[0\]\[2\] is 'Z', not one of Q, K, V, out"),
        (("circuits", 0, "hops"), 0, r"circuits\[0\].hops is 0, not a whole number above 0"),
        (("circuits", 0, "effects"), {"a": None}, "effects.a is null, not a finite number"),
        (("circuits", 0, "coverage", "share"), -1, "coverage.share is -1, not a number in"),
        (("heads",), {"columns": [], "rows": []}, "heads lacks the columns layer, head, previous"),
        (("heads", "rows", 0), [1], r"heads.rows\[0\] has 1 entries, not 9"),
        (("heads", "rows", 0, 0), "x", r"heads.rows\[0\].layer is 'x', not a whole number of 0"),
        (
            ("heads", "rows", 0, 0),
            10**9,
            "heads are not one row for each of 1000000001 layers of",
        ),
        (("heads", "rows", 0, 1), 1, "heads are not one row for each of 2 layers of 2 heads"),
        (("coordinates", "rows", 2, 5), None, r"coordinates.rows\[2\].effect is null, not a fin"),
        (("coordinates", "columns", 1), "unit", "coordinates lacks the columns layer"),
        (("profiles", "rows", 0, 2), 0.5, r"profiles.rows\[0\].back is 0.5, not a whole number"),
        (("measured",), [], "measured is a list, not a mapping"),
        (("measured",), {"ablation": {"a": {}}}, "measured.ablation.a.heads is missing"),
        (("limits",), [1], r"limits\[0\] is 1, not text"),
        (("warnings",), "w", "warnings is 'w', not a list"),
        (("meta", "model"), {}, "meta.model.layers is missing; meta.model.heads is missing"),
        (("meta", "relation", "spelled"), [["a"]], r"meta.relation.spelled\[0\] has 1 entries"),
        (("meta", "relation", "spelled"), 3, "meta.relation.spelled is 3, not a list"),
        (("meta", "relation", "pairs"), [[1, 2, 3]], r"meta.relation.pairs\[0\] has 3 entries"),
    ],
)
def test_every_field_is_checked(
    good: dict[str, Any], path: tuple[Any, ...], value: Any, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(at(good, path, value)))
    with pytest.raises(UnreadableFileError, match=text):
        Report.from_json(file)


def test_several_faults_are_named_together(good: dict[str, Any]) -> None:
    data = at(at(good, ("label",), 3), ("limits",), None)
    del data["meta"]
    text = "label is 3, not one of .*; limits is null, not a list; meta is missing"
    with pytest.raises(ValueError, match=text):
        report_fields(data)


def test_a_report_of_an_earlier_version_is_read(good: dict[str, Any], tmp_path: Path) -> None:
    data = copy.deepcopy(good)
    del data["profiles"], data["label"]
    for circuit in data["circuits"]:
        del circuit["parts"], circuit["hops"]
    (tmp_path / "old.json").write_text(json.dumps(data))
    assert len(Report.from_json(tmp_path / "old.json").profiles) == 0
