"""Kill runs at random moments, resume them to the end, compare with runs that nobody killed.

    python benchmarks/kill_resume.py --rounds 200 --out benchmarks/results/kill_resume.json
    python benchmarks/kill_resume.py --kind zoo --rounds 20

A round is one kill and one resumption. The kill, always SIGKILL, comes at a random time or in the
middle of a random write: half of the file is there, or all of it and not yet in its place, or just
so. Full disks (the kernel's limit on file sizes) come between, and are not counted as rounds. The
same call is made in the same folder until it ends. Every file it leaves must be that of the
uninterrupted run: checkpoints with optimiser and generator state, models and cards byte for byte,
rows of a benchmark but for their clock.

Most rounds fork a process in which everything is imported already, which saves seconds a round;
`--commands` more rounds kill the command line itself. `--workers` kills workers of a suite in
parallel: one job always kills its worker, and must be the only one without a score; one does so
once.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

FULL = 2  # exit code
WAYS = {"any moment": 5, "in a write": 4, "full disk": 1}  # and their weights
CASES = ("previous/zero/edge", "offset/zero/edge")
METHODS = ("truth", "imir", "random")
# kind, folder, seconds or None, draws -> exit code, way of dying
Attempt: TypeAlias = Callable[[str, Path, float | None, random.Random], tuple[int, str]]
TINY = {"n_blocks": 2, "n_common": 6, "n_rare": 6}


@dataclass(frozen=True)
class Kind:
    """A long run: the call that makes or resumes it, and the command line that does the same."""

    call: Callable[[Path], object]
    command: tuple[str, ...] = ()


def train(folder: Path) -> None:
    from imir_detect.tasks import make_task
    from imir_detect.training.loop import Recipe, train
    from imir_detect.weights.native import ModelSpec

    task = make_task("recall", **TINY)
    spec = ModelSpec(task.vocab_size, task.n_positions, d_model=16, n_heads=1, norm="LN", d_mlp=8)
    recipe = Recipe(steps=24, batch=8, evaluate_every=4, seed=3)
    train(task, spec, recipe, folder=folder, progress=False)


def bench(folder: Path) -> None:
    from imir_detect.benchmark.contract import Budget
    from imir_detect.benchmark.results import write_rows
    from imir_detect.benchmark.run import run_suite

    budget = Budget(samples=8, draws=20)
    rows = run_suite(CASES, METHODS, folder=folder, budget=budget, progress=False)
    write_rows(rows, folder)


def zoo(folder: Path) -> None:
    from imir_detect.training.loop import Recipe
    from imir_detect.zoo.build import build
    from imir_detect.zoo.grid import Architecture, Entry

    style = Architecture("tiny", "training", {"n_heads": 2, "d_model": 16})
    knobs = {"n_blocks": 2, "n_common": 0, "n_rare": 8, "rare_frequency": 1.0}
    entries = []
    for seed, goal in enumerate((0.0, 2.0, 2.0)):  # the first ends at once, the others at the end
        recipe = Recipe(steps=60, batch=8, evaluate_every=10, seed=seed, stop_at={"accuracy": goal})
        entries.append(Entry(f"m{seed}", "training", "recall", knobs, style, recipe, "icl"))
    build(entries, folder, tell=lambda line: None)


KINDS = {
    "train": Kind(
        train,
        (
            *("train", "--blocks", "2", "--common", "6", "--rare", "6", "--steps", "500"),
            *("--width", "16", "--heads", "1"),
        ),
    ),
    "bench": Kind(
        bench,
        (
            *("bench", "run", CASES[0], "--samples", "8", "--method", "truth"),
            *("--method", "imir", "--method", "eap", "--folder"),
        ),
    ),
    "zoo": Kind(zoo),
}


# -- what a run leaves ----------------------------------------------------------------------------


def left_by(folder: Path) -> dict[str, Any]:
    """Every file by name: its bytes, or its rows without their clock. Parquet holds the rows."""
    from imir_detect.benchmark.run import CLOCK

    def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{k: v for k, v in row.items() if k not in CLOCK} for row in rows]

    found: dict[str, Any] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(file.relative_to(folder))
        if file.suffix == ".parquet":
            import pandas

            found[name] = timeless(json.loads(pandas.read_parquet(file).to_json(orient="records")))
        elif file.parent.name == "runs" or name == "rows.json":
            rows = json.loads(file.read_text(encoding="utf-8"))
            found[name] = timeless(rows if isinstance(rows, list) else [rows])
        else:
            found[name] = file.read_bytes()
    return found


# -- dying ----------------------------------------------------------------------------------------


def forked(work: Callable[[], object], seconds: float | None = None) -> int:
    """Do it in a forked process, killed after that time: 0, 1, FULL (told as it should be), -9."""
    child = os.fork()
    if child == 0:
        os._exit(_inside(work))
    if seconds is not None:
        _wait(child, seconds)
        os.kill(child, signal.SIGKILL)  # a child that has ended is still ours to reap
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _wait(child: int, seconds: float) -> None:
    """Until that time is over, or the child has ended."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        done = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if done is not None:
            return
        time.sleep(min(0.01, left))


def _inside(work: Callable[[], object]) -> int:
    import torch

    from imir_detect.errors import UnwritableFileError

    torch.set_num_threads(1)  # the parent's threads are not in this process
    try:
        work()
    except UnwritableFileError as error:
        return FULL if "next step" in str(error) else 1
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def dying_in_write(number: int, moment: str) -> None:
    """From now on, this process dies in its write of that number (from 0) at that moment."""
    count = 0
    fsync, replace = os.fsync, Path.replace

    def end() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def patched_fsync(handle: int) -> None:
        nonlocal count
        count += 1
        if count == number + 1 and moment == "half":
            os.ftruncate(handle, os.fstat(handle).st_size // 2)
            end()
        fsync(handle)
        if count == number + 1 and moment == "whole":
            end()

    def patched_replace(self: Path, target: Path) -> Path:
        done = replace(self, target)
        if count == number + 1:
            end()
        return done

    os.fsync, Path.replace = patched_fsync, patched_replace  # type: ignore[method-assign]


def full_disk(size: int) -> None:
    """From now on, the kernel lets this process write no file larger than that."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def attempt_call(
    name: str, folder: Path, seconds: float | None, draw: random.Random
) -> tuple[int, str]:
    """The call in a forked process, which dies in some way unless it ends before; its code and that
    way. It lives where `seconds`, the time that the whole run takes, are not given."""
    call = KINDS[name].call
    if seconds is None:
        return forked(lambda: call(folder)), ""
    (way,) = draw.choices(list(WAYS), list(WAYS.values()))
    if way == "any moment":
        return forked(lambda: call(folder), draw.uniform(0, 0.7 * seconds)), way
    number, moment = draw.randrange(4), draw.choice(("half", "whole", "replaced"))
    size = draw.choice((0, 700, 20_000))

    def work() -> None:
        if way == "in a write":
            dying_in_write(number, moment)
        else:
            full_disk(size)
        call(folder)

    return forked(work), way


def attempt_command(
    name: str, folder: Path, seconds: float | None, draw: random.Random
) -> tuple[int, str]:
    """The same of the command line, killed at a random time of the later half."""
    first, *rest = KINDS[name].command
    line = [first, str(folder), *rest] if name == "train" else [first, *rest, str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "imir_detect", *line],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        process.wait(None if seconds is None else draw.uniform(0.4, 1.0) * seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    return process.wait(), "command line"


# -- rounds ---------------------------------------------------------------------------------------


def rounds(name: str, number: int, seed: int, attempt: Attempt = attempt_call) -> dict[str, Any]:
    """Runs killed and resumed until there were `number` kills; the counts, and every difference."""
    draw = random.Random(f"{name} {seed}")
    different: list[list[str]] = []
    ways: Counter[str] = Counter()
    kills = runs = 0
    with tempfile.TemporaryDirectory() as home:
        whole, folder = Path(home) / "whole", Path(home) / "killed"
        start = time.monotonic()
        code, _ = attempt(name, whole, None, draw)
        seconds = time.monotonic() - start
        if code != 0:
            raise SystemExit(f"{name}: the uninterrupted run failed with code {code}")
        wanted = left_by(whole)
        while kills < number:
            code = FULL
            while code != 0:
                code, way = attempt(name, folder, seconds if kills < number else None, draw)
                if code not in (0, FULL, -signal.SIGKILL):
                    raise SystemExit(f"{name}: a resumed run failed with code {code}")
                kills += code == -signal.SIGKILL
                ways += Counter([way] if code else [])
            got = left_by(folder)
            names = sorted(k for k in {*wanted, *got} if wanted.get(k) != got.get(k))
            different += [names] if names else []
            runs += 1
            shutil.rmtree(folder)
    label = name if attempt is attempt_call else f"{name}, command line"
    return {"kind": label, "kills": kills, **ways, "runs": runs, "different": different}


KILLER = """
import os, signal
from pathlib import Path
import torch
from imir_detect.benchmark.contract import Scores

def end():
    os.kill(os.getpid(), signal.SIGKILL)

def always(case, *, budget):
    if case.name.startswith("previous"):
        end()
    return Scores(torch.ones(len(case.items)))

def once(case, *, budget):
    flag = Path(__file__).with_name("died")
    if not flag.exists():
        flag.touch()
        end()
    return Scores(torch.ones(len(case.items)))
"""


def workers() -> dict[str, Any]:
    """A suite on two workers: one method kills every worker that runs it on one case, one method
    the first worker only."""
    from imir_detect.benchmark.contract import Budget
    from imir_detect.benchmark.run import CLOCK, run_suite

    budget = Budget(samples=8, draws=20)
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "killer.py").write_text(KILLER)
        sys.path.insert(0, home)
        names = ("truth", "killer:always", "random", "killer:once")
        how: dict[str, Any] = {"budget": budget, "progress": False}
        rows = run_suite(CASES, names, folder=Path(home) / "a", workers=2, **how)
        alone = run_suite(CASES, ("truth", "random"), folder=Path(home) / "b", **how)
        sys.path.remove(home)
    kept = [row for row in rows if not row["method"].startswith("killer")]
    same = [{k: v for k, v in row.items() if k not in CLOCK} for row in kept] == [
        {k: v for k, v in row.items() if k not in CLOCK} for row in alone
    ]
    status = {f"{r['case']} {r['method']}": f"{r['status']} {r['reason']}".strip() for r in rows}
    different = [] if same and sum(r["status"] != "ok" for r in rows) == 1 else [status]
    return {"kind": "workers", "rows": status, "different": different}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="kills in all, shared by the kinds")
    parser.add_argument("--kind", choices=sorted(KINDS), action="append", help="default: all")
    parser.add_argument("--commands", type=int, default=0, help="kills of each command line")
    parser.add_argument("--workers", action="store_true", help="kill workers of a suite, too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON; results of other kinds stay in it")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # torch's backward pass does not outlive a fork with it

    import torch

    torch.set_num_threads(1)
    names = args.kind or list(KINDS)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:  # imports and first calls, once
            KINDS[name].call(Path(folder) / name)
    found = []
    for index, name in enumerate(names):
        share = args.rounds // len(names) + (index < args.rounds % len(names))
        if share:
            found.append(rounds(name, share, args.seed))
            print(found[-1], flush=True)
    for name in names if args.commands else ():
        if KINDS[name].command:
            found.append(rounds(name, args.commands, args.seed, attempt_command))
            print(found[-1], flush=True)
    if args.workers:
        found.append(workers())
        print(found[-1], flush=True)
    if args.out:
        from imir_detect.files import write_atomically

        command = f"python benchmarks/kill_resume.py {' '.join(sys.argv[1:])}"
        facts = {"torch": torch.__version__.split("+")[0], "machine": platform.machine()}
        kept = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else []
        kinds = {row["kind"] for row in found}
        kept = [row for row in kept if row["kind"] not in kinds]
        kept += [{**row, **facts, "command": command} for row in found]
        write_atomically(args.out, (json.dumps(kept, indent=1) + "\n").encode())
    if any(row.get("different") for row in found):
        raise SystemExit("some resumed runs differ from the uninterrupted ones")


if __name__ == "__main__":
    main()
