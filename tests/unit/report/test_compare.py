"""Reports side by side: order kept, turns told, a page that escapes."""

from pathlib import Path
from typing import Any

import pytest
from report_cases import HOSTILE

from imir_detect.errors import InvalidArgumentError
from imir_detect.report.compare import compare


def reports(shipped: dict[str, Any]) -> dict[str, Any]:
    return {name: report for name, (_, report) in shipped.items()}


def test_the_order_is_kept_and_its_turns_are_told(shipped: dict[str, Any]) -> None:
    by_name = reports(shipped)
    course = compare({step: by_name[step] for step in ("none", "iwl", "mixed")})
    assert course.table.column("label") == ["none", "iwl", "mixed"]
    assert course.summary() == (
        "Of 3 models, 1 answers from its weights, 1 does both and 1 has no circuit that answers. "
        "In the order given the label goes from none to iwl at iwl and from iwl to mixed at mixed."
    )
    assert "in_weights" in str(course)
    assert course.summary() in course._repr_html_()
    assert compare([by_name["icl"]] * 2).table.column("model") == ["0", "1"]


def test_many_turns_are_counted_not_told(shipped: dict[str, Any]) -> None:
    by_name = reports(shipped)
    shelf = compare([by_name["icl"], by_name["none"]] * 4)
    assert shelf.summary() == (
        "Of 8 models, 4 answer from the context and 4 have no circuit that answers."
    )


def test_the_page_holds_every_model_and_escapes_its_name(
    shipped: dict[str, Any], tmp_path: Path
) -> None:
    by_name = reports(shipped)
    page = compare({**by_name, HOSTILE[0]: by_name["icl"]}).to_html(tmp_path / "all.html")
    text = page.read_text(encoding="utf-8")
    assert HOSTILE[0] not in text
    assert text.count('<li class="cell ') == 5
    assert text.count("<circle") == 10
    few = compare(list(by_name.values())[:2]).to_html(tmp_path / "few.html")
    assert "<circle" not in few.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "text"), [([], "got none"), ({"a": 3}, "got int as a"), (["x"], "got str as 0")]
)
def test_what_is_no_report_is_refused(given: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"only reports can be compared; {text}; want"):
        compare(given)
