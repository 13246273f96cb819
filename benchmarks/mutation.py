"""Mutation testing of the stages that read circuits: how many planted faults do the tests notice?

    python benchmarks/mutation.py cover           which tests reach which line, at what cost
    python benchmarks/mutation.py run --seed 1    a seeded sample of 300 mutants
    python benchmarks/mutation.py report          the table and its figures, from the CSV

A mutant (`mutants.py`) is run in a process of its own, forked from one that has the third-party
libraries loaded, against the tests that reach its statement: the recorded answers of
tests/recorded/ first, then the cheapest of the rest, until one fails or `--cap` seconds of tests
are used up; what is not killed within the cap counts as survived. Time is
CPU time, so that other load on the machine neither kills nor saves. A mutant that runs for much
longer than its tests do is reported as `timeout` and counts as killed. In the end every test that
killed one is run once more on the code as it is, in the same way: it must pass.

Rows are added to the CSV as they come; a run that was stopped goes on where it was. Survivors that
no test could tell from the code as it is are listed with the reason in `EQUIVALENT`; they were
looked at one by one, and the report names them and gives both figures.
"""

from __future__ import annotations

import argparse
import csv
import gc
import hashlib
import json
import math
import os
import random
import resource
import signal
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path
from typing import Any

import pytest
from mutants import Mutant, mutants
from mutation_reach import PACKAGE, RECORDED, ROOT, STAGES, Reach, cover, stage_files

RESULTS = Path(__file__).parent / "results"
EQUIVALENT = RESULTS / "mutation_equivalent.json"
HYPOTHESIS = "_hypothesis_pytestplugin"
QUIET = ["-q", "-x", "-o", "addopts=", "-p", "no:cacheprovider", "-p", HYPOTHESIS]
WARM = (
    "torch", "transformer_lens", "transformers", "sklearn.linear_model", "scipy.stats", "pandas",
    "networkx", "safetensors.torch", "hypothesis", "typer", "rich.console", "jaxtyping", "tqdm",
    # Of the package, what imports no stage: no mutant can be in it.
    "imir_detect.weights.read", "imir_detect.strict", "imir_detect.progress",
    "imir_detect.tasks.causal_graph", "imir_detect.tasks.latent_graph",
)  # fmt: skip
FIELDS = ["name", "status", "by", "tests", "cpu_s"]


# -- one mutant ----------------------------------------------------------------------------------


class Changed:
    """An import finder that gives one module another source; nothing is written to disk."""

    def __init__(self, file: str, source: str) -> None:
        parts = ["imir_detect", *Path(file).with_suffix("").parts]
        self.package = parts[-1] == "__init__"
        self.module = ".".join(parts[:-1] if self.package else parts)
        self.path, self.source = str(PACKAGE / file), source

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.module:
            return None
        finder = self

        class Loader(SourceFileLoader):
            def get_code(self, fullname: str) -> Any:
                return compile(finder.source, finder.path, "exec")

        loader = Loader(name, self.path)
        return spec_from_loader(name, loader, is_package=self.package)


class First:
    """A pytest plugin: the first test that fails, and how many ran."""

    def __init__(self) -> None:
        self.failed, self.ran = "", 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.ran += report.when == "call"
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = f"import of {report.nodeid}"


def first_changed(tests: list[str], first: First) -> None:
    """The recorded answers among the tests, compared without the cost of pytest's start."""
    from plain_answers import differences
    from recorded import ANSWERS, answer

    known = json.loads(ANSWERS.read_text(encoding="utf-8"))["answers"]
    for test in tests:
        name = test.removeprefix(RECORDED).removesuffix("]")
        first.ran += 1
        if next(differences(answer(name), known[name]), None):
            first.failed = test
            return


def child(tests: list[str], changed: Changed | None, out: int) -> None:
    """Run the tests (recorded answers, then a cheap batch, then the rest) and write what came of
    it. The recorded answers do not start pytest, which costs more than most of them."""
    if changed is not None:
        sys.meta_path.insert(0, changed)
    first, code = First(), 0
    recorded = [test for test in tests if test.startswith(RECORDED)]
    if recorded:
        try:
            first_changed(recorded, first)
        except Exception:
            first.failed = recorded[max(0, first.ran - 1)]
    rest = [test for test in tests if test not in recorded]
    if rest and not first.failed:
        code = run_pytest(rest, first)
    told = {"failed": first.failed, "ran": first.ran, "code": code}
    os.write(out, json.dumps(told).encode())


def run_pytest(tests: list[str], first: First) -> int:
    import hypothesis

    hypothesis.settings.register_profile("mutation", deadline=None, database=None, derandomize=True)
    hypothesis.settings.load_profile("mutation")
    code = 0
    with open(os.devnull, "w") as null, redirect_stdout(null), redirect_stderr(null):
        for batch in (tests[:12], tests[12:]):
            if batch and not first.failed:
                code = max(code, int(pytest.main([*QUIET, *batch], plugins=[first])))
    return code


def run_tests(tests: list[str], expected: float, changed: Changed | None) -> dict[str, Any]:
    """What a forked process made of the tests."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            limit = math.ceil(60 + 10 * expected)  # a busy machine slows CPU time, too
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
            signal.alarm(60 * limit)
            child(tests, changed, write)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read()
    _, status, usage = os.wait4(pid, 0)
    result = json.loads(told) if told else {"failed": "", "ran": 0, "code": -1}
    stopped = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM)
    result["status"] = (
        "timeout" if stopped else "killed" if result["failed"] or not told else "survived"
    )
    result["cpu_s"] = round(usage.ru_utime + usage.ru_stime, 1)
    return result


# -- the sample ----------------------------------------------------------------------------------


def every_mutant() -> list[Mutant]:
    files = stage_files()
    return [m for f in files for m in mutants(f, (PACKAGE / f).read_text(encoding="utf-8"))]


def fingerprint() -> str:
    """Of the code under test."""
    texts = [(PACKAGE / file).read_bytes() for file in stage_files()]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:12]


def warm_up() -> None:
    warnings.simplefilter("ignore")
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "recorded")]
    for name in WARM:
        __import__(name)
    loaded = [name for name in sys.modules if name.startswith("imir_detect.")]
    assert not [name for name in loaded if name.split(".")[1] in STAGES]
    import torch

    torch.func.vjp(torch.sin, torch.zeros(()))  # the first call imports much
    gc.freeze()  # a collection in the child would copy every page of these
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.chdir(ROOT)


def run(out: Path, seed: int, sample: int, cap: float, only: str) -> None:
    warm_up()
    reach = Reach()
    known = json.loads((ROOT / "tests/recorded/answers.json").read_text(encoding="utf-8"))
    stale = {t for t in reach.cost if t.startswith(RECORDED)} - {
        f"{RECORDED}{name}]" for name in known["answers"]
    }
    if stale:
        sys.exit(f"the map holds recorded cases that are no more: {sorted(stale)}; run cover anew")
    chosen = random.Random(seed).sample(every_mutant(), sample)
    rows = read_rows(out)
    about = f"# code {fingerprint()}, seed {seed}, sample {sample}, cap {cap:g} s"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(about + "\n" + ",".join(FIELDS) + "\n", encoding="utf-8")
    elif out.read_text(encoding="utf-8").splitlines()[0] != about:
        sys.exit(f"{out} holds rows of other code or another sample; give another --out")
    for mutant in chosen:
        if mutant.name in rows or only not in mutant.name:
            continue
        tests, expected = reach.chosen(mutant, cap)
        source = mutant.apply((PACKAGE / mutant.file).read_text(encoding="utf-8"))
        result = run_tests(tests, expected, Changed(mutant.file, source))
        by = result["failed"] if tests else "no test reaches it"
        with out.open("a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, FIELDS, lineterminator="\n").writerow(
                {
                    "name": mutant.name,
                    "status": result["status"],
                    "by": by,
                    "tests": result["ran"],
                    "cpu_s": result["cpu_s"],
                }
            )
    killers = sorted({row["by"] for row in read_rows(out).values() if "::" in row["by"]})
    check = run_tests(killers, 600.0, None)
    print(f"{len(killers)} killing tests on the code as it is: {check['failed'] or 'all pass'}")


def read_rows(path: Path) -> dict[str, dict[str, str]]:
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        return {row["name"]: row for row in csv.DictReader(lines)}


# -- the report ----------------------------------------------------------------------------------


def wilson(k: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share of k in n (Wilson 1927)."""
    p, scale = k / n, 1 + z**2 / n
    middle = p + z**2 / (2 * n)
    width = z * math.sqrt(p * (1 - p) / n + (z / 2 / n) ** 2)
    return (middle - width) / scale, (middle + width) / scale


def report(out: Path) -> None:
    rows = read_rows(out)
    reasons = json.loads(EQUIVALENT.read_text(encoding="utf-8")) if EQUIVALENT.exists() else {}
    killed = [r for r in rows.values() if r["status"] == "killed"]
    late = [name for name, r in rows.items() if r["status"] == "timeout"]
    survived = [name for name, r in rows.items() if r["status"] == "survived"]
    same = [name for name in survived if name in reasons]
    n, k = len(rows), len(killed) + len(late)
    low, high = wilson(k, n)
    lines = [
        "# Mutation testing",
        "",
        f"By `python benchmarks/mutation.py`; {out.name}: "
        + out.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        + ".",
        "",
        "| mutants | killed | of these by timeout | survived | of these equivalent | killed, % "
        "| 95 % interval | killed of those not equivalent, % |",
        "|---|---|---|---|---|---|---|---|",
        f"| {n} | {k} | {len(late)} | {len(survived)} | {len(same)} | {100 * k / n:.1f} | "
        f"{100 * low:.1f} .. {100 * high:.1f} | {100 * k / (n - len(same)):.1f} |",
        "",
        "Survived, with the reason where it cannot be told from the code as it is:",
        "",
        *(f"- {name}: {reasons.get(name, 'no test notices it')}" for name in sorted(survived)),
        "",
    ]
    if late:
        lines += ["Stopped for time:", "", *(f"- {name}" for name in sorted(late)), ""]
    text = "\n".join(lines)
    out.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["cover", "run", "report"])
    parser.add_argument("tests", nargs="*", help="cover: these tests only")
    parser.add_argument("--out", type=Path, default=RESULTS / "mutation.csv")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--cap", type=float, default=25.0, help="CPU seconds of tests a mutant")
    parser.add_argument("--only", default="", help="mutants whose name holds this")
    options = parser.parse_args()
    if options.step == "cover":
        cover(options.tests)
    elif options.step == "run":
        run(options.out, options.seed, options.sample, options.cap, options.only)
    else:
        report(options.out)


if __name__ == "__main__":
    main()
