"""The docs site builds, every page is in its navigation, and a broken link stops the build."""

import runpy
from pathlib import Path

import pytest
from browser import chromium, see, serious_violations

pytest.importorskip("markdown")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tools() -> dict:
    return runpy.run_path(str(ROOT / "docs" / "build_site.py"), run_name="tools")


@pytest.fixture(scope="module")
def site(tools: dict, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return tools["build"](tmp_path_factory.mktemp("site"))


def test_the_site_builds_and_every_link_leads_somewhere(site: list[Path]) -> None:
    pages, folder = site, site[0].parent
    names = {page.stem for page in pages}
    assert {p.stem for p in (ROOT / "docs").glob("*.md")} - {"README"} <= names
    front = (folder / "index.html").read_text(encoding="utf-8")
    for name in names:
        assert f'href="{name}.html"' in front
    assert "runs first" not in "".join(page.read_text(encoding="utf-8") for page in pages)
    assert (folder / "reports" / "mixed.html").stat().st_size > 50_000


def test_axe_finds_no_serious_violation_on_the_site(site: list[Path]) -> None:
    with chromium() as driver:
        for name in ("index", "quickstart", "api"):
            for dark in (False, True):
                page = site[0].parent / f"{name}.html"
                assert see(driver, page, dark=dark) == []
                assert serious_violations(driver) == [], (name, dark)


def test_a_broken_link_stops_the_build(tools: dict, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<a href="page.html#here">x</a><a href="gone.html">y</a><b id="there"></b>')
    with pytest.raises(
        Exception, match=r"page.html: page.html#here, no such place on that page; page.html: gone"
    ) as found:
        tools["check"](tmp_path, [page])
    assert type(found.value).__name__ == "BrokenLink"
