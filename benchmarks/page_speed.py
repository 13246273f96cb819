"""How large the report page is, and how soon a reader can use it, in headless Chromium.

    python benchmarks/page_speed.py

For a small model and for one of 12 x 12 heads (48,386 coordinates): bytes, and the median of 5
fresh loads, in milliseconds from the start of navigation until the script has drawn its table and
every control answers. Needs Chromium, chromedriver and selenium; reads no network.
"""

from __future__ import annotations

import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
READY = """const done = arguments[0];
const wait = () => document.documentElement.dataset.ready
  ? done(performance.now()) : requestAnimationFrame(wait);
wait();"""


def load_ms(driver, page: Path) -> float:
    driver.get("about:blank")
    driver.get(page.as_uri())
    return driver.execute_async_script(READY)


def main() -> None:
    from browser import chromium
    from report_cases import big_report

    from imir_detect import detect_circuits, shipped_model

    logging.disable(logging.WARNING)
    reports = {
        "2 x 2 heads": detect_circuits(shipped_model("mixed")),
        "12 x 12 heads": big_report(),
    }
    with tempfile.TemporaryDirectory() as folder, chromium() as driver:
        print("| model | coordinates | page | written in | usable after |")
        print("|---|---|---|---|---|")
        for name, report in reports.items():
            start = time.perf_counter()
            page = report.to_html(Path(folder) / "page.html")
            written = time.perf_counter() - start
            times = [load_ms(driver, page) for _ in range(5)]
            print(
                f"| {name} | {len(report.coordinates):,} | {page.stat().st_size / 1e6:.2f} MB | "
                f"{written:.1f} s | {statistics.median(times):.0f} ms "
                f"({min(times):.0f} - {max(times):.0f}) |"
            )


if __name__ == "__main__":
    main()
