"""Bars show after two seconds, on a terminal, and never when they are silenced."""

import io
import sys
from typing import Any

import pytest

from imir_detect import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, **options: Any) -> str:
    """What a bar of three steps writes to a stream."""
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(progress.bar([1, 2, 3], what="counting", **options)) == [1, 2, 3]
    return stream.getvalue()


def test_a_terminal_gets_a_bar_once_the_delay_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress.DELAY == 2
    assert shown(monkeypatch, Terminal()) == ""  # three steps are over before
    monkeypatch.setattr(progress, "DELAY", 0)
    assert "counting:" in shown(monkeypatch, Terminal())


def test_pipes_callers_and_quiet_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 0)
    assert shown(monkeypatch, io.StringIO()) == ""
    assert shown(monkeypatch, Terminal(), show=False) == ""
    progress.silence()
    assert shown(monkeypatch, Terminal()) == ""
    progress.silence(False)
    assert "counting:" in shown(monkeypatch, Terminal())


def test_quiet_on_the_command_line_silences_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from imir_detect.cli import app

    monkeypatch.setattr(progress, "DELAY", 0)
    CliRunner().invoke(app, ["--quiet", "support"])
    assert shown(monkeypatch, Terminal()) == ""
    CliRunner().invoke(app, ["support"])
    assert "counting:" in shown(monkeypatch, Terminal())
