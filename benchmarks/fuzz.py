"""Hostile inputs by the ten thousand, in this process: every one is answered or refused in words.

    python benchmarks/fuzz.py                  12,000 inputs; writes results/fuzz.json and fuzz.md
    python benchmarks/fuzz.py --count 300      fewer, printed and not kept
    python benchmarks/fuzz.py --only card:17   one input by its kind and number, with its traceback

An input is a file that the product reads (reports, cards, fits, bench rows, exchange formats,
configurations, safetensors headers, torch files), a command line, a state dict with its
configuration, or the arguments of the front door. It fails if it ends in anything but an answer or
an `ImirError` (on the command line: exit code 0, 1 with one line, or 2), if it takes more than
`LIMIT` seconds, if code in a file is run, or if anything is written outside its own folder that a
command line did not name. (There, writes are refused as a user without rights would be.)
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

RESULTS = Path(__file__).parent / "results"
LIMIT = 20.0  # seconds of one input
os.environ.setdefault("HF_HUB_OFFLINE", "1")


class TookTooLong(Exception):
    """Raised by the alarm clock."""


@dataclass
class Count:
    """What became of the inputs of one kind."""

    inputs: int = 0
    answered: int = 0
    refused: int = 0
    slowest: float = 0.0
    slowest_input: str = ""
    failed: list[str] = field(default_factory=list)


def run(count: int, *, seed: int, only: str = "") -> dict[str, Count]:
    """`count` inputs, spread over the kinds by their weight; or one kind, or one input of it."""
    from fuzz_targets import KINDS

    total = sum(weight for weight, _ in KINDS.values())
    chosen, _, number = only.partition(":")
    found = {}
    for kind, (weight, _) in KINDS.items():
        if chosen in ("", kind):
            numbers = [int(number)] if number else range(-(-count * weight // total))
            found[kind] = run_kind(kind, numbers, seed=seed)
    return found


def run_kind(kind: str, numbers: Iterable[int], *, seed: int) -> Count:
    """The inputs of one kind with these numbers."""
    from fuzz_targets import KINDS

    count = Count()
    with scratch() as home:
        target = KINDS[kind][1](home)
        for number in numbers:
            one(count, f"{kind}:{number}", target, Random(f"{seed}/{kind}/{number}"), home)
    return count


def one(count: Count, name: str, target: Callable[[Random], None], rng: Random, home: Path) -> None:
    """One input, judged."""
    from fuzz_guard import guarded

    from imir_detect.errors import ImirError

    count.inputs += 1
    refused: list[str] = []
    start = time.perf_counter()
    try:
        with guarded(home) as refused, alarm(LIMIT), contextlib.redirect_stdout(io.StringIO()):
            target(rng)
        count.answered += 1
    except ImirError as error:
        count.refused += 1
        if not str(error).strip():
            count.failed.append(f"{name}: an error without words")
    except BaseException as error:  # whatever else comes out is a failure
        if isinstance(error, KeyboardInterrupt):
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(str(error).split())[:200]
        place = f"{Path(where.filename).name}:{where.lineno}"
        count.failed.append(f"{name}: {type(error).__name__}: {said} ({place})")
    seconds = time.perf_counter() - start
    if seconds > count.slowest:
        count.slowest, count.slowest_input = seconds, name
    if (home / "pwned").exists():
        count.failed.append(f"{name}: ran code from a file")
    if refused and not asked(name):
        count.failed.append(f"{name}: would write {refused}")


def asked(name: str) -> bool:
    """Whether an input may name a place to write to: command lines do."""
    return name.startswith("command:")


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise TookTooLong in the block after so many seconds."""

    def ring(*_: Any) -> None:
        raise TookTooLong(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A working directory that is removed again."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


def markdown(found: dict[str, Count], command: str) -> str:
    """The table of a run."""
    total = sum(c.inputs for c in found.values())
    failed = sum(len(c.failed) for c in found.values())
    lines = [f"{total:,} inputs, {failed} failures; `{command}`.", ""]
    lines += [
        "| kind | inputs | answered | refused in words | failed | slowest |",
        "|" + "---|" * 6,
    ]
    for name, c in found.items():
        cells = (name, c.inputs, c.answered, c.refused, len(c.failed), f"{c.slowest:.2f} s")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run, print, and keep what a full run found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=12_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="KIND, or KIND:NUMBER")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    sys.path.insert(0, str(Path(__file__).parent))
    found = run(options.count, seed=options.seed, only=options.only)
    print(markdown(found, f"python benchmarks/fuzz.py --seed {options.seed}"))
    failures = [text for c in found.values() for text in c.failed]
    for text in failures:
        print(text.encode("ascii", "backslashreplace").decode())
    if options.count >= 10_000 and not options.only:
        facts = {
            "seed": options.seed,
            "inputs": sum(c.inputs for c in found.values()),
            "failures": failures,
            "python": platform.python_version(),
            "kinds": {name: vars(c) for name, c in found.items()},
        }
        (RESULTS / "fuzz.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        text = markdown(found, f"python benchmarks/fuzz.py --seed {options.seed}")
        (RESULTS / "fuzz.md").write_text(text, encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
