"""The slopes that the cost of detection is told by, and those of the committed tables."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "pretrained_speed.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_the_slope_of_a_power_is_its_exponent(script: dict[str, Any]) -> None:
    heads = [16, 32, 64, 128]
    for power in (0.0, 1.0, 2.0):
        assert script["slope"](heads, [3.0 * n**power for n in heads]) == pytest.approx(power)


def test_the_committed_costs_are_near_linear_in_heads(script: dict[str, Any]) -> None:
    rows = [row for row in script["read"]("pretrained_speed.csv") if row["vocabulary"] == 5000]
    assert [row["layers"] for row in rows] == list(script["DEPTHS"])
    heads = [row["layers"] * row["heads"] for row in rows]
    for column in ("detect_cpu_s", "feeders_cpu_s"):
        assert script["slope"](heads, [row[column] for row in rows]) < 1.25
