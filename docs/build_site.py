"""Builds the docs as a small static site: `python docs/build_site.py [FOLDER]`, default site/.

README becomes the front page. Links between pages are rewritten and every one of them is followed:
a link or an anchor that leads nowhere stops the build. The shipped models' reports come with it.
"""

from __future__ import annotations

import logging
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import markdown
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TEMPLATES = (DOCS / "site", ROOT / "imir_detect" / "report" / "templates")
NAV = (
    (
        "First steps",
        (
            "index",
            "quickstart",
            "reading-a-report",
            "my-checkpoint",
            "my-task",
            "my-family",
            "command-line",
            "idea",
            "examples",
            "faq",
        ),
    ),
    (
        "Behind it",
        (
            "detection",
            "theory",
            "replication",
            "causal-graphs",
            "tasks",
            "zoo",
            "reproducible",
            "api",
            "changelog",
        ),
    ),
    ("Benchmark", ("benchmark", "benchmark-method", "benchmark-case")),
)
SOURCES = {
    "index": ROOT / "README.md",
    "changelog": ROOT / "CHANGELOG.md",
    "examples": ROOT / "examples" / "README.md",
}
ELSEWHERE = {
    "README.md": "index.html",
    "CHANGELOG.md": "changelog.html",
    "examples/README.md": "examples.html",
}


class BrokenLink(Exception):
    """A link of the docs that leads nowhere."""


@dataclass(frozen=True)
class Page:
    """One page: its name, its title, its body as HTML, and its table of contents."""

    name: str
    title: str
    body: str
    contents: list[dict[str, object]]


def sources() -> dict[str, Path]:
    """Every page's Markdown; a page of docs/ that the navigation leaves out comes last."""
    found = {p.stem: p for p in sorted(DOCS.glob("*.md")) if p.stem != "README"}
    return {**SOURCES, **found}


def read(name: str, path: Path) -> Page:
    """A page from its Markdown."""
    text = path.read_text(encoding="utf-8")
    engine = markdown.Markdown(
        extensions=["tables", "fenced_code", "codehilite", "toc", "sane_lists"],
        extension_configs={"codehilite": {"guess_lang": False}, "toc": {"toc_depth": "2-3"}},
    )
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = text[re.search(r"^# ", text, re.MULTILINE).start() :]  # type: ignore[union-attr]
    folder = "examples/" if name == "examples" else ""
    body = re.sub(
        r'(href|src|srcset)="([^"]+)"', lambda m: _rewrite(m, folder), engine.convert(text)
    )
    body = re.sub(r'<a href="([^"]+)">(.*?)</a>', _unlinked, body)
    body = body.replace("<pre>", '<pre tabindex="0">')
    body = body.replace("<table>", '<div class="scroll" tabindex="0"><table>')
    body = body.replace("</table>", "</table></div>")
    title = re.search(r"^# (.*)$", text, re.MULTILINE)
    return Page(name, title[1].replace("`", "") if title else name, body, engine.toc_tokens)


def _rewrite(found: re.Match[str], folder: str) -> str:
    """A link as the site needs it: .md becomes .html, and `docs/` falls away; `folder` is where the
    page's other links lie."""
    kind, link = found[1], found[2]
    target, _, anchor = link.partition("#")
    if not target or "://" in target or target.startswith("data:"):
        return found[0]
    target = target.removeprefix("../").removeprefix("docs/")
    if target.endswith(".md"):
        target = ELSEWHERE.get(target, target.removesuffix(".md") + ".html")
    else:
        target = folder + target
    return f'{kind}="{target}{"#" + anchor if anchor else ""}"'


def _unlinked(found: re.Match[str]) -> str:
    """The words alone where a link leads to what the site does not hold."""
    target = found[1].partition("#")[0]
    here = (
        "://" in target or target.endswith(".html") or target.startswith(("examples/", "images/"))
    )
    here = here and not target.startswith("benchmarks/")  # tables stay in the repository
    return found[0] if not target or here else found[2]


def build(folder: Path) -> list[Path]:
    """Write the site; returns its pages. Raises BrokenLink where a link leads nowhere."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined
    )
    pages = {name: read(name, path) for name, path in sources().items()}
    known = {name for _, names in NAV for name in names}
    nav = [(title, [n for n in names if n in pages]) for title, names in NAV]
    rest = [name for name in pages if name not in known]
    if rest:
        nav.append(("More", rest))
    light = HtmlFormatter(style="friendly").get_style_defs(".codehilite")
    dark = HtmlFormatter(style="native").get_style_defs(".codehilite")
    style = environment.get_template("theme.css.j2").render()
    style += environment.get_template("site.css.j2").render(light=Markup(light), dark=Markup(dark))
    template = environment.get_template("site.html.j2")
    written = []
    for page in pages.values():
        path = folder / f"{page.name}.html"
        text = template.render(page=page, body=Markup(page.body), nav=nav, pages=pages,
                               style=Markup(style))  # fmt: skip
        path.write_text(text, encoding="utf-8")
        written.append(path)
    shutil.copytree(DOCS / "images", folder / "images", dirs_exist_ok=True)
    shutil.copytree(ROOT / "examples", folder / "examples", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
    example_reports(folder / "reports")
    check(folder, written)
    return written


def example_reports(folder: Path) -> None:
    """The shipped models' reports and their comparison, as a reader would get them."""
    from imir_detect import detect_circuits, shipped_model
    from imir_detect.report.compare import compare
    from imir_detect.zoo import SHIPPED

    reports = {name: detect_circuits(shipped_model(name)) for name in SHIPPED}
    for name, report in reports.items():
        report.to_html(folder / f"{name}.html", name=f"shipped model {name}")
    compare(reports).to_html(folder / "compared.html")


def check(folder: Path, pages: list[Path]) -> None:
    """Follow every link of every page; raise BrokenLink at those that lead nowhere."""
    texts = {path: path.read_text(encoding="utf-8") for path in pages}
    broken = []
    for path, text in texts.items():
        for link in re.findall(r'(?:href|src|srcset)="([^"]+)"', text):
            target, _, anchor = unquote(link).partition("#")
            if "://" in target or target.startswith(("data:", "mailto:")):
                continue
            there = path if not target else (folder / target).resolve()
            if not there.is_file():
                broken.append(f"{path.name}: {link}")
            elif anchor and there in texts and f'id="{anchor}"' not in texts[there]:
                broken.append(f"{path.name}: {link}, no such place on that page")
    if broken:
        raise BrokenLink("; ".join(broken))


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site").resolve()
    print(f"{len(build(target))} pages in {target.name}/, every link leads somewhere")
