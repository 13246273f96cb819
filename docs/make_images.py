"""Writes docs/images from the shipped models and committed tables: `python docs/make_images.py`.

The two pictures of the page need Chromium, chromedriver, selenium and pillow; the rest does not.
"""

from __future__ import annotations

import ast
import csv
import io
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMAGES = Path(__file__).parent / "images"
RESULTS = ROOT / "benchmarks" / "paper" / "results"


def figures() -> None:
    """The five figures of docs/idea.md, and the phase diagram of docs/replication.md."""
    import matplotlib

    from imir_detect import detect_circuits, shipped_model
    from imir_detect.report.compare import compare
    from imir_detect.report.figures import figure
    from imir_detect.report.page import graph_svg
    from imir_detect.zoo import SHIPPED

    matplotlib.rcParams["svg.hashsalt"] = "imir-detect"  # the same bytes every time
    reports = {name: detect_circuits(shipped_model(name)) for name in SHIPPED}
    (IMAGES / "circuit.svg").write_text(graph_svg(reports["icl"]), encoding="utf-8")
    tracked = [{k: v for k, v in row.items() if k != "loss"} for row in table("tracking")]
    drawn = {
        "profiles": figure("profiles", reports["icl"], backend="matplotlib"),
        "roles": figure("roles", reports["mixed"], backend="matplotlib"),
        "mosaic": figure("mosaic", compare(reports), backend="matplotlib"),
        "trajectories": figure("trajectories", tracked, backend="matplotlib"),
        "phase": figure("phase", table("phase_diagram"), backend="matplotlib"),
    }
    for name, made in drawn.items():
        made.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})
    write_page(reports["icl"])


def table(name: str) -> list[dict[str, Any]]:
    """A committed table: numbers and truth values as such, words as words."""
    with (RESULTS / f"{name}.csv").open(newline="") as stream:
        return [{k: _value(v) for k, v in row.items()} for row in csv.DictReader(stream)]


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def write_page(report: object) -> None:
    """The page of one report, light and dark, as a reader sees its top."""
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import chromium, screenshot, see
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder, chromium() as driver:
        page = report.to_html(Path(folder) / "page.html", name="shipped model “icl”")
        for look in ("light", "dark"):
            see(driver, page, width=1240, dark=look == "dark")
            driver.execute_script("""document.querySelector('.head[data-head="L1H0"]')
                .dispatchEvent(new MouseEvent('click'))""")
            shot = screenshot(driver, Path(folder) / "shot.png", width=1240).read_bytes()
            whole = Image.open(io.BytesIO(shot)).convert("RGB").crop((0, 0, 1240, 960))
            small = whole.quantize(256, method=Image.Quantize.FASTOCTREE)
            small.save(IMAGES / f"page-{look}.png", optimize=True)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    IMAGES.mkdir(exist_ok=True)
    figures()
    for path in sorted(IMAGES.iterdir()):
        print(f"{path.stat().st_size:8,} {path.name}")
