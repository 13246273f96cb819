"""Every example in a docstring runs and gives what it says."""

import doctest
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

import imir_detect

ROOT = Path(imir_detect.__file__).parent
MODULES = [
    info.name
    for info in pkgutil.walk_packages([str(ROOT)], "imir_detect.")
    if not info.ispkg
    if ">>>" in (ROOT.parent / (info.name.replace(".", "/") + ".py")).read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_say(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert found.failed == 0
