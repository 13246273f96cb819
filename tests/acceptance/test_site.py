"""The docs site builds, every page is in its navigation, and a broken link stops the build."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("markdown")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tools() -> dict:
    return runpy.run_path(str(ROOT / "docs" / "build_site.py"), run_name="tools")


def test_the_site_builds_and_every_link_leads_somewhere(tools: dict, tmp_path: Path) -> None:
    pages = tools["build"](tmp_path / "site")
    names = {page.stem for page in pages}
    assert {p.stem for p in (ROOT / "docs").glob("*.md")} - {"README"} <= names
    front = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    for name in names:
        assert f'href="{name}.html"' in front
    assert "runs first" not in "".join(page.read_text(encoding="utf-8") for page in pages)
    assert (tmp_path / "site" / "reports" / "mixed.html").stat().st_size > 50_000


def test_a_broken_link_stops_the_build(tools: dict, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<a href="page.html#here">x</a><a href="gone.html">y</a><b id="there"></b>')
    with pytest.raises(
        Exception, match=r"page.html: page.html#here, no such place on that page; page.html: gone"
    ) as found:
        tools["check"](tmp_path, [page])
    assert type(found.value).__name__ == "BrokenLink"
