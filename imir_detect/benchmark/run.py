"""The runner: every method on every case, one flat row a run, resumable, on one core or a cluster.

Each finished run is one JSON file under FOLDER/runs; a run whose file exists is not run again,
unless it is of an outside method whose own file has changed since. A method that declines, fails or
kills its worker leaves a row with its reason, and the suite goes on. A folder holds runs of one
budget and one state of the code. Cases are made anew on the worker that runs them, from their
names; methods see no labels.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import resource
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from imir_detect._version import __version__
from imir_detect.benchmark.cases import Case, Labels
from imir_detect.benchmark.contract import Budget, Scores, find_method
from imir_detect.benchmark.metrics import circuit_metrics, rank_metrics
from imir_detect.benchmark.scatter import scatter
from imir_detect.benchmark.suites import case_parts, make_case
from imir_detect.errors import (
    BusyFolderError,
    ImirError,
    UnreadableFileError,
    UnwritableFileError,
    collecting,
    raise_all,
)
from imir_detect.files import hold, refuse_other, write_atomically
from imir_detect.strict import (
    COUNT,
    NUMBER,
    TEXT,
    Shape,
    check_shape,
    json_text,
    one_of,
    or_null,
    read_json,
)

FORMAT = 3
CLOCK = (
    "seconds",
    "cpu_seconds",
    "memory_mb",
    "threads",
    "machine",
)  # columns that differ from run to run
DEFAULT = (
    "truth",
    "imir",
    "imir-eliminate",
    "edge-patching",
    "acdc",
    "eap",
    "eap-corrupt",
    "eap-ig-inputs",
    "eap-ig-activations",
    "mask-gradients",
    "hisp",
    "edge-pruning",
    "subnetwork-probing",
    "attention-patterns",
    "composition",
    "random",
)


@dataclass(frozen=True)
class Job:
    """One method on one case."""

    case: str
    method: str
    budget: Budget

    @property
    def key(self) -> str:
        """Name of the run's file: readable, and unique by a hash of everything that matters."""
        text = json.dumps([FORMAT, self.case, self.method, asdict(self.budget)])
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        plain = f"{self.case}-{self.method}".replace("/", "-").replace(":", "-")
        return f"{plain}-{digest}"


def run_suite(
    cases: Sequence[str],
    methods: Sequence[str] = DEFAULT,
    *,
    folder: Path,
    budget: Budget | None = None,
    workers: int = 1,
    backend: str = "loky",
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Run what is not there yet and return every row, in order of case and method.

    `workers`, `backend`: joblib's; "loky" on one machine, "dask" for the cluster that the current
    `distributed.Client` is connected to, "ray" where ray is installed. Rows do not depend on them.
    """
    problems: list[ImirError] = []
    for name in methods:
        with collecting(problems):
            find_method(name)
    for name in cases:
        with collecting(problems):
            case_parts(name)
    raise_all(problems)  # wrong names are told before anything runs
    budget = budget or Budget()
    jobs = [Job(case, name, budget) for case in cases for name in methods]
    with hold(folder), _quiet_on_one_thread():
        _refuse_others(folder, budget)
        by_case: dict[str, list[Job]] = {}
        for job in jobs:
            by_case.setdefault(job.case, []).append(job)
        scatter(
            [todo for group in by_case.values() if (todo := _left(group, folder))],
            partial(run_case, folder=folder),
            left=partial(_left, folder=folder),
            give_up=partial(_give_up, folder=folder),
            workers=workers,
            backend=backend,
            progress=progress,
        )
        return [read_row(_file(folder, job)) for job in jobs]


def run_case(jobs: Iterable[Job], folder: Path) -> None:
    """All jobs of one case, one after the other; the case is made once."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    case: Case | None = None
    trouble: dict[str, Any] = {}
    for job in jobs:
        if case is None and not trouble:
            try:
                case = make_case(job.case, folder / "models")
            except (UnwritableFileError, BusyFolderError):
                raise  # no fault of the case: it is to run once that is mended
            except ImirError as error:
                trouble = {"reason": f"no such case: {error}"}
            except Exception as error:  # one failed case never stops a suite
                trouble = {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
        row = {**_declined(job, ""), **trouble} if case is None else run_one(job, case)
        _write(job, row, folder)


def _left(jobs: Iterable[Job], folder: Path) -> list[Job]:
    return [job for job in jobs if not _done(job, _file(folder, job))]


def _done(job: Job, file: Path) -> bool:
    """Whether a job was run, by the method as it is now."""
    code = find_method(job.method).code
    return file.exists() and (not code or read_row(file)["method_code"] == code)


def _give_up(job: Job, folder: Path) -> None:
    reason = "its process died twice: killed from outside, or out of memory"
    _write(job, {**_declined(job, reason), "status": "failed"}, folder)


def _write(job: Job, row: dict[str, Any], folder: Path) -> None:
    write_atomically(_file(folder, job), json_text(row).encode())


def read_row(file: Path) -> dict[str, Any]:
    """A finished run, as it was written."""
    try:
        row = read_json(file)
        check_shape(row, ROW, "the row")
        if row["status"] == "ok":
            needed = SPENT if row["source"] == "control" else (*RANKED, *SPENT)
            check_shape(row, dict.fromkeys((*needed, "top"), NUMBER), "the row")
            _check_items(row["item_scores"] or "", row["item_labels"] or "")
        budget = Budget(**{k[7:]: v for k, v in row.items() if k.startswith("budget_")})
        if Job(row["case"], row["method"], budget).key != file.stem or "status" not in row:
            raise ValueError("the row of another run")
        return row
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableFileError(
            f"{file} is no run of the benchmark",
            got=f"{type(error).__name__}: {error}",
            wanted="one row as strict JSON",
            todo="remove the file, and start the same command again to run it anew",
        ) from error


def _check_items(scores: str, labels: str) -> None:
    """One finite number an item, and what it counts as. Raises ValueError."""
    count = sum(1 for text in scores.split() if math.isfinite(float(text)))
    if count != len(scores.split()) or count != len(labels) or set(labels) - set("+-."):
        raise ValueError(f"{count} finite item_scores for {len(labels)} item_labels")


def _refuse_others(folder: Path, budget: Budget) -> None:
    """A table must not mix budgets or states of the code."""
    ours = {**_spent(budget), "version": __version__, "code": code_hash()}
    for file in sorted((folder / "runs").glob("*.json")):
        row = read_row(file)
        refuse_other(folder, {name: row.get(name) for name in ours}, ours)


@contextmanager
def _quiet_on_one_thread() -> Iterator[None]:
    """Leaves the caller's number of threads and warnings as they were."""
    threads = torch.get_num_threads()
    try:
        with warnings.catch_warnings():
            yield
    finally:
        torch.set_num_threads(threads)


def run_one(job: Job, case: Case) -> dict[str, Any]:
    """One method on one case, as a flat row."""
    chosen = find_method(job.method)
    labels = case.labels
    assert labels is not None
    row = {**_declined(job, ""), **_facts(case)}
    control = labels.source == "control"
    if not labels.scorable and not control:
        return {**row, "reason": "the truth has nothing right, or nothing wrong, to rank"}
    shown = case if chosen.sees == "truth" else case.blind()
    try:
        support = chosen.supports(shown)
        if not support.ok:
            return {**row, "reason": support.reason}
        start, spent = time.perf_counter(), time.thread_time()
        scores = chosen.run(shown, budget=job.budget)
        seconds, spent = time.perf_counter() - start, time.thread_time() - spent
        if scores.values.shape[-1] != len(case.items):
            raise ImirError(
                "a method must score every item",
                got=f"{scores.values.shape[-1]} scores",
                wanted=f"{len(case.items)}, in the order of case.items",
                todo="mend the method",
            )
        scores = replace(scores, values=scores.values.detach())
        found: dict[str, Any] = {}
        if not control:
            found |= {**rank_metrics(case, labels, scores), **circuit_metrics(case, labels, scores)}
    except Exception as error:  # one failed run never stops a suite
        return {**row, "status": "failed", "reason": f"{type(error).__name__}: {error}"}
    return {
        **row,
        "status": "ok",
        **found,
        **_by_item(case, labels, scores),
        "forwards": int(scores.forwards),
        "backwards": int(scores.backwards),
        "seconds": seconds,
        "cpu_seconds": spent,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


RANKED = (
    "auc",
    "auc_stair",
    "ap",
    "precision",
    "shd",
    "faithfulness",
    "kl",
    "accuracy",
    "cpr",
    "cmd",
)
SPENT = ("forwards", "backwards", "seconds", "cpu_seconds", "memory_mb")
METRICS = (*RANKED, "auc_low", "auc_high", "recall", *SPENT)
ROW: Shape = {
    **dict.fromkeys(
        ("case", "model", "ablation", "granularity", "method", "method_code", "reason"), TEXT
    ),
    "status": one_of("ok", "declined", "failed"),
    **dict.fromkeys(("source", "kind", "twin", "truth"), or_null(TEXT)),
    **dict.fromkeys(("items", "right", "wrong"), or_null(COUNT)),
    **dict.fromkeys(METRICS, or_null(NUMBER)),
    "top": or_null(NUMBER),
    **dict.fromkeys(("item_scores", "item_labels"), or_null(TEXT)),
}


def _declined(job: Job, reason: str) -> dict[str, Any]:
    """A row with nothing measured; every row has the same columns."""
    model, ablation, granularity = job.case.split("/")
    return {
        "case": job.case,
        "model": model,
        "source": None,
        "kind": None,
        "twin": None,
        "truth": None,
        "ablation": ablation,
        "granularity": granularity,
        "items": None,
        "right": None,
        "wrong": None,
        "method": job.method,
        "sees": find_method(job.method).sees,
        "method_code": find_method(job.method).code,
        "status": "declined",
        "reason": reason,
        **dict.fromkeys(METRICS),
        "top": None,
        "item_scores": None,
        "item_labels": None,
        **_spent(job.budget),
        "version": __version__,
        "code": code_hash(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def _by_item(case: Case, labels: Labels, scores: Scores) -> dict[str, Any]:
    """The first draw item by item, so that a table can be recomputed from its rows: scores to six
    digits, and "+" right, "-" wrong, "." not scored, in the order of `case.items`."""
    first = scores.values.reshape(-1, len(case.items))[0].tolist()
    marks = {**dict.fromkeys(labels.positive, "+"), **dict.fromkeys(labels.negative, "-")}
    return {
        "top": max(first),
        "item_scores": " ".join(f"{value:.6g}" for value in first),
        "item_labels": "".join(marks.get(item, ".") for item in case.items),
    }


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Which state of the package made a row: a hash of its source files."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def _spent(budget: Budget) -> dict[str, Any]:
    return {f"budget_{name}": value for name, value in asdict(budget).items()}


def _facts(case: Case) -> dict[str, Any]:
    labels = case.labels
    assert labels is not None
    return {
        **case.facts,
        "truth": labels.source,
        "items": len(case.items),
        "right": len(labels.positive),
        "wrong": len(labels.negative),
    }


def _file(folder: Path, job: Job) -> Path:
    return folder / "runs" / f"{job.key}.json"
