"""The report page in a real headless Chromium: what a reader sees and does.

Screenshots go to the folder that IMIR_SCREENSHOTS names, else to the test's own.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, screenshot, see, serious_violations
from report_cases import big_report, hostile_report
from studies_cases import GRAPH, SUITE

from imir_detect.circuits.eliminate import Elimination
from imir_detect.report.compare import compare
from imir_detect.report.plates import write_graph_page, write_leaderboard_page
from imir_detect.table import rounded

MOST_BYTES = 6_000_000


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def pages(shipped: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    reports = {
        "small": shipped["mixed"][1],
        "none": shipped["none"][1],
        "hostile": hostile_report(shipped["icl"][1]),
        "big": big_report(),
    }
    made = {
        name: report.to_html(folder / f"{name}.html", name=f"model {name}")
        for name, report in reports.items()
    }
    trace = Elimination(0.5, (2, 0), (1,), (0.1, 0.2, 0.4), (1.0, 0.9, 0.8), 0.7, 6)
    measured = {"ablation": {"induction": {
        "heads": ["L0H1", "L1H0"], "intact": 0.9, "ablated": 0.1, "resampled": 0.1, "random": None,
        "intervals": {"intact": [0.8, 0.95]}, "asked": "32 contexts", "forward_passes": 4,
        "edges": [{"edge": "L0H0, L0H1 -K-> L1H0", "intact": 0.2, "ablated": 0.1, "random": None,
                   "measures": "attention to the token after the earlier copy"}],
    }}}  # fmt: skip
    traced = replace(shipped["icl"][1], measured=measured).with_elimination(
        trace, ["L0H0[shift 1]", "copy", "match"]
    )
    made |= {
        "traced": traced.to_html(folder / "traced.html"),
        "graph": write_graph_page(GRAPH, folder / "graph.html", name="a model"),
        "board": write_leaderboard_page(SUITE, folder / "board.html"),
    }
    course = {name: report for name, (_, report) in shipped.items()}
    return {**made, "compare": compare(course).to_html(folder / "compare.html")}


def text(driver: Any, selector: str) -> str:
    script = "return document.querySelector(arguments[0]).textContent"
    return str(driver.execute_script(script, selector))


def click(driver: Any, selector: str) -> None:
    """A click where a reader's would land: on the element, scrolled into view."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    element = driver.find_element(By.CSS_SELECTOR, selector)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    ActionChains(driver).move_to_element(element).click().perform()


def keys(driver: Any, *pressed: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(driver).send_keys(*pressed).perform()


LOOKS = {
    "light": (1280, False, ""),
    "dark": (1280, True, ""),
    "phone": (390, False, ""),
    "print": (1000, True, "print"),
}


@pytest.mark.parametrize(
    ("name", "look"),
    [
        *product(("small", "big", "compare"), LOOKS),
        ("hostile", "light"),
        ("none", "phone"),
        ("traced", "phone"),
        ("graph", "dark"),
        ("graph", "phone"),
        ("board", "light"),
        ("board", "phone"),
        ("board", "print"),
    ],
)
def test_the_page_says_nothing_on_the_console_and_fits_its_width(
    driver: Any, pages: dict[str, Path], tmp_path: Path, name: str, look: str
) -> None:
    width, dark, media = LOOKS[look]
    console = see(driver, pages[name], width=width, dark=dark, media=media)
    assert console == []
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    paper = "return getComputedStyle(document.body).backgroundColor"
    channels = driver.execute_script(paper).removeprefix("rgb(").removesuffix(")").split(", ")
    assert (max(map(int, channels)) < 60) == (dark and media != "print")
    folder = Path(os.environ.get("IMIR_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    assert screenshot(driver, folder / f"{name}-{look}.png", width=width).stat().st_size > 20_000


def test_a_click_on_a_head_shows_its_numbers_and_a_second_one_lets_go(
    driver: Any, pages: dict[str, Path]
) -> None:
    see(driver, pages["small"])
    assert "Hover over a head" in text(driver, "#details")
    click(driver, '.graph .head[data-head="L0H0"]')
    assert text(driver, "#details h3") == "L0H0"
    assert "attends one back: " in text(driver, "#details ul")
    assert "predicted attention" in text(driver, "#details ul")
    assert "Role: previous token." in text(driver, "#details")
    assert driver.execute_script("return document.querySelectorAll('tr.pinned').length") == 1
    click(driver, '.graph .head[data-head="L0H0"]')
    assert driver.execute_script("return document.querySelectorAll('.pinned').length") == 0


def test_the_keyboard_alone_walks_the_heads(driver: Any, pages: dict[str, Path]) -> None:
    from selenium.webdriver.common.keys import Keys

    see(driver, pages["small"])
    driver.execute_script("document.querySelector('.card:last-of-type').focus()")
    for _ in range(3):  # the drawing, then its one head in the tab order
        keys(driver, Keys.TAB)
        if driver.execute_script("return document.activeElement.matches('.head')"):
            break
    assert text(driver, "#details h3") == "L0H0"
    keys(driver, Keys.ARROW_UP, Keys.ARROW_RIGHT)
    assert text(driver, "#details h3") == "L1H1"
    keys(driver, Keys.ARROW_UP)  # there is no layer 2
    assert text(driver, "#details h3") == "L1H1"
    keys(driver, Keys.ENTER)
    pinned = "return document.querySelector('.graph .pinned').dataset.head"
    assert driver.execute_script(pinned) == "L1H1"
    keys(driver, Keys.ESCAPE)
    assert driver.execute_script("return document.querySelectorAll('.pinned').length") == 0


def test_choosing_a_circuit_shows_its_heads_and_its_edges_only(
    driver: Any, pages: dict[str, Path]
) -> None:
    see(driver, pages["small"])
    shown = """return [[...document.querySelectorAll('.graph .circuit.in:not(.labels)')].map(n =>
        n.dataset.circuit), [...document.querySelectorAll('.head.in')].map(n => n.dataset.head)]"""
    assert driver.execute_script(shown) == [["0"], ["L0H0", "L0H1", "L1H0", "L1H1"]]
    click(driver, '.card[data-circuit="1"]')
    assert driver.execute_script(shown) == [["1"], ["L0H1", "L1H0"]]
    pressed = "return document.querySelector('.card[aria-pressed=true]').dataset.circuit"
    assert driver.execute_script(pressed) == "1"


def test_tables_sort_both_ways_and_filter(
    driver: Any, pages: dict[str, Path], shipped: dict[str, Any]
) -> None:
    see(driver, pages["small"])
    column = """return [...document.querySelectorAll(arguments[0])].map(n => n.textContent)"""
    report = shipped["mixed"][1]
    place = report.coordinates.columns.index("effect") - 1  # layer and head are one column
    cells = f"#coordinate-table tbody td:nth-child({place + 1})"
    header = f'#coordinate-table [data-column="{place}"]'
    expected = sorted((f"{v:.4g}" for v in report.coordinates.column("effect")), key=float)
    shown = [rounded(float(v), 2).replace("-", "\u2212") for v in expected]
    click(driver, header)
    assert driver.execute_script(column, cells) == shown[::-1]
    click(driver, header)
    assert driver.execute_script(column, cells) == shown
    order = f"return document.querySelector('{header}').parentNode.getAttribute('aria-sort')"
    assert driver.execute_script(order) == "ascending"

    click(driver, '#filters [name="text"]')
    keys(driver, "l0h1>")
    assert text(driver, "#count") == f"4 of {len(report.coordinates)} rows"
    click(driver, '#filters [type="reset"]')
    time.sleep(0.1)
    assert text(driver, "#count").startswith(f"{len(report.coordinates)} of")

    click(driver, "#head-table thead th:nth-child(2) button")
    first = text(driver, "#head-table tbody tr:first-child th")
    best = max(report.heads, key=lambda row: row["previous_token"])
    assert first == f"L{best['layer']}H{best['head']}"


def test_the_theme_button_turns_the_page_round(driver: Any, pages: dict[str, Path]) -> None:
    see(driver, pages["small"], dark=True)
    colour = "return getComputedStyle(document.body).backgroundColor"
    before = driver.execute_script(colour)
    click(driver, "#theme")
    assert driver.execute_script(colour) != before
    click(driver, "#theme")
    assert driver.execute_script(colour) == before


def test_hostile_text_is_shown_and_never_run(driver: Any, pages: dict[str, Path]) -> None:
    from report_cases import HOSTILE

    see(driver, pages["hostile"])
    assert driver.execute_script("return window.hacked") is None
    assert driver.execute_script("return document.querySelectorAll('script, img').length") == 2
    items = "return [...document.querySelectorAll('#limits li')].map(n => n.textContent)"
    assert driver.execute_script(items) == list(HOSTILE)
    first = "return document.querySelector('#coordinate-table tbody tr').textContent"
    assert HOSTILE[1] in driver.execute_script(first)


def test_the_leaderboard_sorts(driver: Any, pages: dict[str, Path]) -> None:
    see(driver, pages["board"])
    names = "return [...document.querySelector('tbody').children].map(r => r.cells[0].textContent)"
    assert driver.execute_script(names) == ["slow", "quick", "poor"]
    click(driver, "thead th:nth-child(4) button")  # seconds, largest first
    assert driver.execute_script(names) == ["poor", "slow", "quick"]


def test_the_comparison_sorts(driver: Any, pages: dict[str, Path]) -> None:
    see(driver, pages["compare"])
    names = "return [...document.querySelectorAll('tbody th')].map(n => n.textContent)"
    assert driver.execute_script(names) == ["icl", "iwl", "mixed", "none"]
    click(driver, "thead th:nth-child(4) button")  # the probability of iwl
    assert driver.execute_script(names)[0] == "iwl"


def test_a_large_page_is_small_asks_for_nothing_and_is_soon_ready(
    driver: Any, pages: dict[str, Path]
) -> None:
    page = pages["big"]
    assert page.stat().st_size < MOST_BYTES
    driver.get_log("performance")
    see(driver, page)
    assert driver.execute_script("return document.documentElement.dataset.ready") == "yes"
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = {e["params"]["request"]["url"] for e in events
             if e["method"] == "Network.requestWillBeSent"}  # fmt: skip
    assert {url for url in asked if not url.startswith("data:")} == {page.as_uri()}
    assert text(driver, "#count") == "48,386 of 48,386 rows"
    click(driver, '#pager [data-step="1"]')
    assert text(driver, "#pager span") == "page 2 of 968"


@pytest.mark.parametrize(
    ("name", "dark"),
    [("small", False), ("small", True), ("none", True), ("big", False),
     ("compare", False), ("compare", True), ("traced", False), ("traced", True),
     ("graph", False), ("graph", True), ("board", False), ("board", True)],
)  # fmt: skip
def test_axe_finds_no_serious_violation(
    driver: Any, pages: dict[str, Path], name: str, dark: bool
) -> None:
    see(driver, pages[name], dark=dark)
    if name in ("small", "none", "big"):
        click(driver, '.graph .head[data-head="L0H0"]')
    assert serious_violations(driver) == []
