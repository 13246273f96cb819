"""The page as text: escaped, strict, self-contained, in words that follow from the report."""

import builtins
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_cases import HOSTILE, big_report, hostile_report

from imir_detect import Report
from imir_detect.circuits.eliminate import Elimination
from imir_detect.errors import ImirError, InvalidArgumentError
from imir_detect.report.page import graph_svg, report_page


class Reader(HTMLParser):
    """Tags with their attributes, and the text of each script block."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.words.append(data)


def test_nothing_hostile_leaves_its_place(shipped: dict[str, Any]) -> None:
    report = hostile_report(shipped["icl"][1])
    page = Reader(report_page(report, name=HOSTILE[1]))
    assert [tag for tag, _ in page.tags if tag in ("img", "iframe", "object")] == []
    assert len(page.scripts) == 2
    assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on")]
    words = "".join(page.words)
    for text in HOSTILE:
        assert text in words
    assert "<" not in page.scripts[0]

    def fail(text: str) -> None:
        raise AssertionError(text)

    data = json.loads(page.scripts[0], parse_constant=fail)
    path = next(c for c in data["coordinates"] if c["name"] == "path")
    assert HOSTILE[1] in path["levels"]


@given(st.lists(st.text(max_size=40), min_size=1, max_size=10))
@settings(max_examples=8, deadline=None)
def test_any_text_is_shown_as_it_is(texts: list[str]) -> None:
    report = replace(big_report(1, 1, 2), limits=tuple(texts))
    page = Reader(report_page(report, name=texts[0]))
    for text in texts:
        assert text in "".join(page.words)
    assert len(page.scripts) == 2


def test_half_a_surrogate_pair_does_not_stop_the_page(tmp_path: Path) -> None:
    page = replace(big_report(1, 1, 2), limits=("\ud83d",)).to_html(tmp_path / "p.html")
    assert "<li>\\ud83d</li>" in page.read_text(encoding="utf-8")


def test_a_saved_report_has_the_same_page(shipped: dict[str, Any], tmp_path: Path) -> None:
    report = shipped["mixed"][1]
    again = Report.from_json(report.to_json(tmp_path / "r.json"))
    assert report_page(again) == report_page(report)


def test_the_page_asks_for_nothing(shipped: dict[str, Any]) -> None:
    text = report_page(shipped["icl"][1])
    links = [a[k] or "" for _, a in Reader(text).tags for k in ("href", "src") if k in a]
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert "@import" not in text
    assert "default-src 'none'" in text
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/]{43}='", text)


def test_ids_are_unique_and_every_jump_lands(shipped: dict[str, Any]) -> None:
    tags = Reader(report_page(shipped["mixed"][1])).tags
    ids = [a["id"] for _, a in tags if "id" in a]
    assert len(ids) == len(set(ids))
    jumps = {str(a["href"])[1:] for tag, a in tags if tag == "a"}
    assert jumps <= set(ids)
    labelled = {str(a["aria-labelledby"]) for _, a in tags if "aria-labelledby" in a}
    assert labelled <= set(ids)


def test_the_large_page_holds_every_coordinate_to_four_digits() -> None:
    report = big_report(3, 4, 8)
    data = json.loads(Reader(report_page(report)).scripts[0])
    columns = {c["name"]: c for c in data["coordinates"]}
    assert list(columns) == ["unit", "head", "path", "selection", "effect", "cosine", "z",
                             "predicted"]  # fmt: skip
    assert columns["effect"]["values"] == pytest.approx(
        report.coordinates.column("effect"), rel=5e-4
    )
    levels = columns["path"]["levels"]
    assert [levels[i] for i in columns["path"]["values"]] == report.coordinates.column("path")
    assert columns["head"]["levels"][-1] == "-"
    assert columns["z"]["values"][0] is None


def test_a_report_without_circuits_profiles_or_meta_still_has_a_page(
    shipped: dict[str, Any], tmp_path: Path
) -> None:
    from imir_detect.result import NO_PROFILES

    report: Report = replace(shipped["none"][1], profiles=NO_PROFILES, meta={}, limits=())
    text = report.to_html(tmp_path / "deep" / "page.html").read_text(encoding="utf-8")
    assert "No circuit that answers" in text
    assert 'id="distance"' not in text
    assert 'id="measured"' not in text
    assert "Nothing recorded." in text


def test_what_was_run_stands_beside_the_prediction(shipped: dict[str, Any]) -> None:
    measured = {
        "icl_accuracy": 0.25,
        "steps": 12,
        "ablation": {
            "induction": {"heads": ["L0H0"], "intact": 0.9, "ablated": 0.1, "random": None}
        },
    }
    words = " ".join(Reader(report_page(replace(shipped["icl"][1], measured=measured))).words)
    words = re.sub(r"\s+", " ", words)
    assert "icl accuracy 0.25" in words
    assert "Ablating induction: L0H0 model as it is 0.90 these heads ablated 0.10" in words
    assert "as many random heads -" in words
    assert "steps 12" in words


def test_the_graph_alone_is_an_svg_of_one_circuit(shipped: dict[str, Any]) -> None:
    svg = graph_svg(shipped["mixed"][1], circuit=1)
    assert svg.startswith("<svg")
    assert svg.count("<svg") == 1
    assert svg.count('data-circuit="1"') == 2  # its edges, and its labels above the heads
    assert 'data-circuit="0"' not in svg
    assert "prefers-color-scheme:dark" in svg
    import xml.etree.ElementTree as ET

    ET.fromstring(svg)


def test_a_page_without_jinja2_says_what_to_install(
    shipped: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "jinja2":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImirError, match=r"a page needs jinja2; .*imir-detect\[report\]"):
        report_page(shipped["icl"][1])


def test_a_trace_of_algorithm_1_is_kept_drawn_and_named(
    shipped: dict[str, Any], tmp_path: Path
) -> None:
    found = Elimination(0.5, (2, 0), (1,), (0.1, 0.2, 0.4), (1.0, 0.9, 0.8), float("inf"), 6)
    report = shipped["icl"][1].with_elimination(found, ["match", "copy <b>", "shift"])
    assert report.measured["elimination"]["removed"] == ["shift", "match"]
    assert report.measured["elimination"]["blocked"] is None
    again = Report.from_json(report.to_json(tmp_path / "r.json"))
    assert again == report
    page = report_page(again)
    words = re.sub(r"\s+", " ", " ".join(Reader(page).words))
    assert "2 of 3 directions are gone at a loss of 0.400 nats and an accuracy of 0.80" in words
    assert "kept copy <b>" in words
    assert "budget 0.5" in words
    assert 'id="measured"' not in page  # nothing else was run
    assert page.count('<svg class="chart"') == 2
    assert "elimination.removed" in str(report)
    with pytest.raises(InvalidArgumentError, match="got 2 names; wanted 3, one a direction"):
        report.with_elimination(found, ["a", "b"])
