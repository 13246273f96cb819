"""A real headless Chromium for tests of pages: Debian's own, or whatever lies in the usual places.

Without one the tests skip and say so; with IMIR_NEED_BROWSER=1 (as in CI) they fail instead.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


def missing() -> str:
    """What is not there for a browser test; empty when all is."""
    if not any(map(shutil.which, NAMES)):
        return "no Chromium on the path (Debian: apt-get install chromium chromium-driver)"
    if not shutil.which("chromedriver"):
        return "no chromedriver on the path (Debian: apt-get install chromium-driver)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed (pip install selenium)"
    return ""


def need(lacking: str) -> None:
    """Skip, or fail where a browser is promised, when something is lacking."""
    if lacking and os.environ.get("IMIR_NEED_BROWSER"):
        pytest.fail(lacking)
    if lacking:
        pytest.skip(lacking)


@contextmanager
def chromium() -> Iterator[Any]:
    """A driver with no profile, no network use and its console recorded."""
    need(missing())
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, NAMES)))
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def see(
    driver: Any, page: Path, *, width: int = 1280, dark: bool = False, media: str = ""
) -> list[dict[str, Any]]:
    """Open a page at a width, in a colour scheme, on screen or as print; its console messages."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    calm = {"name": "prefers-reduced-motion", "value": "reduce"}
    emulate = driver.execute_cdp_cmd
    emulate("Emulation.setEmulatedMedia", {"media": media, "features": [scheme, calm]})
    _size(driver, width, 900)
    driver.get_log("browser")
    driver.get(page.as_uri())
    return list(driver.get_log("browser"))


def screenshot(driver: Any, path: Path, *, width: int, most: int = 6000) -> Path:
    """The whole page as a PNG."""
    height = driver.execute_script("return document.documentElement.scrollHeight")
    _size(driver, width, min(height, most))
    picture = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    path.write_bytes(base64.b64decode(picture["data"]))
    return path


def serious_violations(driver: Any) -> list[tuple[str, str, list[str]]]:
    """What axe-core finds serious or critical on the open page: rule, impact, first places."""
    axe = os.environ.get("AXE_CORE", "")
    need("" if Path(axe).is_file() else "AXE_CORE names no axe.min.js (npm pack axe-core)")
    driver.execute_script(Path(axe).read_text(encoding="utf-8"))
    found = driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert len(found["passes"]) > 20, "axe-core looked at next to nothing"
    return [
        (v["id"], v["impact"], [node["html"][:120] for node in v["nodes"][:3]])
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
    ]


def _size(driver: Any, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
