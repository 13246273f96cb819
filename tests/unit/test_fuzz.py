"""A few hundred of the inputs that `benchmarks/fuzz.py` makes by the ten thousand."""

import contextlib
import sys
import time
import warnings
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SHARES = {"report": 40, "card": 30, "header": 40, "torch": 20, "fit": 20, "exchange": 40,
          "state": 40, "config": 10, "argument": 80, "command": 40}  # fmt: skip


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    if not BENCHMARKS.exists():
        pytest.skip("benchmarks lie in the repository only")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(sys, "argv", ["imir-detect"])


@pytest.mark.parametrize("kind", SHARES)
def test_hostile_inputs_are_answered_or_refused_in_words(kind: str) -> None:
    import fuzz

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        count = fuzz.run_kind(kind, range(SHARES[kind]), seed=20)
    assert count.failed == []
    assert count.inputs == SHARES[kind]
    assert count.refused > 0


def test_a_failure_is_seen() -> None:
    from random import Random

    import fuzz

    def target(rng: Random) -> None:
        Path("here").touch()
        Path("pwned").touch()
        raise ZeroDivisionError("by zero")

    def stranger(rng: Random) -> None:
        with contextlib.suppress(OSError):
            Path("../stranger").write_text("x")

    count = fuzz.Count()
    with fuzz.scratch() as home:
        fuzz.one(count, "x:0", target, Random(0), home)
        fuzz.one(count, "x:1", stranger, Random(0), home)
        assert not (home.parent / "stranger").exists()
    assert count.failed[0].startswith("x:0: ZeroDivisionError: by zero (test_fuzz.py:")
    assert count.failed[1] == "x:0: ran code from a file"
    assert f"x:1: would write ['{home.parent / 'stranger'}']" in count.failed
    with pytest.raises(fuzz.TookTooLong, match=r"more than 0\.01 s"), fuzz.alarm(0.01):
        time.sleep(5)
