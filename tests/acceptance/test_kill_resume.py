"""Five rounds of the script that kills runs and resumes them; its two hundred are committed."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kill_resume.py"

pytestmark = [
    pytest.mark.skipif(not SCRIPT.exists(), reason="the scripts are not in this distribution"),
    pytest.mark.skipif(
        torch.cuda.is_available(), reason="torch's backward pass does not outlive a fork with CUDA"
    ),
]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize(("kind", "number"), [("train", 3), ("bench", 2)])
def test_killed_runs_end_as_the_uninterrupted_ones(
    kind: str, number: int, script: dict[str, Any], tmp_path: Path
) -> None:
    script["KINDS"][kind].call(tmp_path)  # first calls are slow, and every round forks anew
    found = script["rounds"](kind, number, seed=0)
    assert found["kills"] == number
    assert found["different"] == []


def test_the_script_sees_a_run_that_counts_something_twice(script: dict[str, Any]) -> None:
    def counted(name: str, folder: Path, seconds: float | None, draw: Any) -> tuple[int, str]:
        folder.mkdir(exist_ok=True)
        file = folder / "count.txt"
        file.write_text(file.read_text() + "." if file.exists() else ".")
        return (0, "") if seconds is None or draw.random() < 0.5 else (-9, "any moment")

    rounds: Callable[..., dict[str, Any]] = script["rounds"]
    assert rounds("train", 3, 0, counted)["different"][0] == ["count.txt"]
