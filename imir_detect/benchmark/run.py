"""The runner: every method on every case, one flat row a run, resumable, on one core or a cluster.

Each finished run is one JSON file under FOLDER/runs; a run whose file exists is not run again. A
method that declines or fails leaves a row with its reason, and the suite goes on. Cases are made
anew on the worker that runs them, from their names; methods see no labels.
"""

from __future__ import annotations

import hashlib
import json
import platform
import resource
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from imir_detect._version import __version__
from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.contract import Budget, find_method
from imir_detect.benchmark.metrics import circuit_metrics, rank_metrics
from imir_detect.benchmark.suites import make_case
from imir_detect.errors import ImirError
from imir_detect.files import write_atomically
from imir_detect.progress import bar

FORMAT = 1
CLOCK = ("seconds", "memory_mb", "threads", "machine")  # columns that differ from run to run
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
    for name in methods:
        find_method(name)  # a wrong name is an error before anything runs
    jobs = [Job(case, name, budget or Budget()) for case in cases for name in methods]
    todo = [job for job in jobs if not _file(folder, job).exists()]
    by_case: dict[str, list[Job]] = {}
    for job in todo:
        by_case.setdefault(job.case, []).append(job)
    _scatter(list(by_case.values()), folder, workers, backend, progress)
    return [json.loads(_file(folder, job).read_text(encoding="utf-8")) for job in jobs]


def _scatter(
    groups: list[list[Job]], folder: Path, workers: int, backend: str, progress: bool
) -> None:
    if workers == 1 and backend == "loky":
        for group in bar(groups, what="cases", show=progress):
            run_case(group, folder)
        return
    import joblib

    if backend == "ray":
        from ray.util.joblib import register_ray

        register_ray()
    context = nullcontext() if backend == "loky" else joblib.parallel_config(backend=backend)
    with context:
        joblib.Parallel(n_jobs=workers, verbose=5 if progress else 0)(
            joblib.delayed(run_case)(group, folder) for group in groups
        )


def run_case(jobs: Iterable[Job], folder: Path) -> None:
    """All jobs of one case, one after the other; the case is made once."""
    import warnings

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    case: Case | None = None
    reason = ""
    for job in jobs:
        if case is None and not reason:
            try:
                case = make_case(job.case, folder / "models")
            except ImirError as error:
                reason = f"no such case: {error}"
        row = _declined(job, reason) if case is None else run_one(job, case)
        text = json.dumps(row, indent=1, allow_nan=False) + "\n"
        write_atomically(_file(folder, job), text.encode())


def run_one(job: Job, case: Case) -> dict[str, Any]:
    """One method on one case, as a flat row."""
    chosen = find_method(job.method)
    labels = case.labels
    assert labels is not None
    row = {**_declined(job, ""), **_facts(case)}
    if not labels.scorable:
        return {**row, "reason": "the truth has nothing right, or nothing wrong, to rank"}
    shown = case if chosen.sees == "truth" else case.blind()
    try:
        support = chosen.supports(shown)
        if not support.ok:
            return {**row, "reason": support.reason}
        start = time.perf_counter()
        scores = chosen.run(shown, budget=job.budget)
        seconds = time.perf_counter() - start
        if scores.values.shape[-1] != len(case.items):
            raise ImirError(
                "a method must score every item",
                got=f"{scores.values.shape[-1]} scores",
                wanted=f"{len(case.items)}, in the order of case.items",
                todo="mend the method",
            )
        scores = replace(scores, values=scores.values.detach())
        found = {**rank_metrics(case, labels, scores), **circuit_metrics(case, labels, scores)}
    except Exception as error:  # one failed run never stops a suite
        return {**row, "status": "failed", "reason": f"{type(error).__name__}: {error}"}
    return {
        **row,
        "status": "ok",
        **found,
        "forwards": int(scores.forwards),
        "backwards": int(scores.backwards),
        "seconds": seconds,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


METRICS = (
    "auc",
    "auc_low",
    "auc_high",
    "auc_stair",
    "ap",
    "precision",
    "recall",
    "shd",
    "faithfulness",
    "kl",
    "accuracy",
    "cpr",
    "cmd",
    "forwards",
    "backwards",
    "seconds",
    "memory_mb",
)


def _declined(job: Job, reason: str) -> dict[str, Any]:
    """A row with nothing measured; every row has the same columns."""
    model, ablation, granularity = job.case.split("/")
    return {
        "case": job.case,
        "model": model,
        "source": None,
        "kind": None,
        "truth": None,
        "ablation": ablation,
        "granularity": granularity,
        "items": None,
        "right": None,
        "wrong": None,
        "method": job.method,
        "sees": find_method(job.method).sees,
        "status": "declined",
        "reason": reason,
        **dict.fromkeys(METRICS),
        **{f"budget_{name}": value for name, value in asdict(job.budget).items()},
        "version": __version__,
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


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
