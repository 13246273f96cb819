"""The runner: resumes, repeats, scatters, and keeps what failed with its reason."""

import hashlib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from imir_detect.benchmark import run as runner
from imir_detect.benchmark import scatter
from imir_detect.benchmark.contract import METHODS, Budget, Scores, Support, method
from imir_detect.benchmark.meaning import item_scores
from imir_detect.benchmark.metrics import auc
from imir_detect.benchmark.results import (
    leaderboard,
    markdown,
    mean_interval,
    pareto,
    read_rows,
    write_report,
    write_rows,
)
from imir_detect.benchmark.run import CLOCK, Job, run_suite
from imir_detect.benchmark.suites import case_names
from imir_detect.errors import (
    BusyFolderError,
    ImirError,
    InvalidArgumentError,
    UnknownNameError,
    UnreadableFileError,
    UnwritableFileError,
)
from imir_detect.files import hold

CASES = ("previous/zero/edge", "previous/mean/head")
QUICK = ("truth", "imir", "eap", "random")
BUDGET = Budget(samples=8, draws=100)


def run(folder: Path, methods: tuple[str, ...] = QUICK, **how: Any) -> list[dict[str, Any]]:
    return run_suite(CASES, methods, folder=folder, budget=BUDGET, progress=False, **how)


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in CLOCK} for row in rows]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("bench")
    return folder, run(folder)


def test_every_run_is_one_flat_row_with_the_same_columns(rows: Any) -> None:
    _, found = rows
    assert [(r["case"], r["method"]) for r in found] == [(c, m) for c in CASES for m in QUICK]
    assert len({tuple(row) for row in found}) == 1
    assert all(row["status"] == "ok" for row in found)
    assert not any(isinstance(v, (list, dict)) for row in found for v in row.values())
    by_method = {row["method"]: row for row in found[:4]}
    assert by_method["truth"]["auc"] == 1.0
    assert by_method["imir"]["auc"] == 1.0
    assert abs(by_method["random"]["auc"] - 0.5) < 0.05
    assert (by_method["imir"]["forwards"], by_method["eap"]["backwards"]) == (0, 1)


def test_the_same_seed_gives_the_same_table_and_an_interrupted_run_resumes(
    rows: Any, tmp_path: Path
) -> None:
    _, found = rows
    first = run(tmp_path, ("truth", "imir"))
    files = sorted((tmp_path / "runs").glob("*.json"))
    kept, lost = files[0], files[-1]
    stamp = kept.stat().st_mtime_ns
    lost.unlink()
    again = run(tmp_path)
    assert kept.stat().st_mtime_ns == stamp  # what was there was not run again
    assert timeless(again) == timeless(found)
    assert timeless([r for r in again if r["method"] in ("truth", "imir")]) == timeless(first)


def test_a_folder_of_another_state_of_the_code_is_refused(
    rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, found = rows
    monkeypatch.setattr("imir_detect.benchmark.run.code_hash", lambda: "0123456789ab")
    with pytest.raises(InvalidArgumentError, match="got code='0123456789ab'; wanted code='"):
        run(folder)
    assert {row["code"] for row in found} == {found[0]["code"]} != {"0123456789ab"}


def test_a_control_is_run_and_read_without_ranks(tmp_path: Path) -> None:
    names = ("truth", "composition")
    found = run_suite(("induction~fresh/zero/edge",), names, folder=tmp_path, progress=False)
    assert [(row["status"], row["auc"], row["twin"]) for row in found] == [
        ("ok", None, "induction/zero/edge")
    ] * 2
    assert (found[0]["top"], set(found[0]["item_labels"])) == (0.0, {"-"})
    assert read_rows(tmp_path) == sorted(found, key=lambda row: row["method"])


def test_an_area_can_be_recomputed_from_its_row(rows: Any) -> None:
    for row in rows[1]:
        scores, labels = item_scores(row)
        if row["method"] != "random":  # of which the first draw is kept, and the mean shown
            assert auc(scores[labels == 1], scores[labels == 0]) == pytest.approx(row["auc"])


def test_two_workers_give_the_rows_of_one(rows: Any, tmp_path: Path) -> None:
    assert timeless(run(tmp_path, workers=2)) == timeless(rows[1])


def test_a_dask_cluster_gives_them_too(rows: Any, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    import warnings

    with (
        warnings.catch_warnings(),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        warnings.simplefilter("ignore")
        assert len(set(client.run(os.getpid).values()) - {os.getpid()}) == 2
        assert timeless(run(tmp_path, workers=2, backend="dask")) == timeless(rows[1])


def test_an_outside_method_is_run_anew_when_its_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """\
import torch
from imir_detect.benchmark.contract import Scores

def score(case, *, budget):
    return Scores(torch.arange(len(case.items)) * 1.0)
"""
    monkeypatch.syspath_prepend(tmp_path)

    def top(text: str) -> float:
        (tmp_path / "edited.py").write_text(text)
        importlib.invalidate_caches()
        sys.modules.pop("edited", None)  # as in a new process
        (row,) = run_suite(
            CASES[:1], ("edited:score",), folder=tmp_path, budget=BUDGET, progress=False
        )
        assert row["method_code"] == hashlib.sha256(text.encode()).hexdigest()[:12]
        return row["top"]

    first = top(text)
    (file,) = (tmp_path / "runs").glob("*.json")
    stamp = file.stat().st_mtime_ns
    assert top(text) == first > 0
    assert file.stat().st_mtime_ns == stamp
    assert top(text.replace("1.0", "3.00")) == 3 * first


def test_what_is_declined_or_fails_leaves_its_reason(tmp_path: Path) -> None:
    @method(
        "picky", about="", supports=lambda case: Support(case.granularity == "edge", "no heads")
    )
    def picky(case: Any, *, budget: Budget) -> Scores:
        raise RuntimeError("out of luck")

    @method("short", about="")
    def short(case: Any, *, budget: Budget) -> Scores:
        assert case.labels is None  # a method sees no truth
        return Scores(torch.zeros(1))

    try:
        found = run(tmp_path, ("picky", "short", "truth"))
    finally:
        del METHODS["picky"], METHODS["short"]
    by = {(row["method"], row["granularity"]): row for row in found}
    assert by["picky", "edge"]["status"] == "failed"
    assert by["picky", "edge"]["reason"] == "RuntimeError: out of luck"
    assert by["picky", "head"]["status"] == "declined"
    assert by["picky", "head"]["reason"] == "no heads"
    assert "a method must score every item; got 1 scores" in by["short", "edge"]["reason"]
    assert by["truth", "edge"]["status"] == "ok"


def test_wrong_names_stop_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="no such method"):
        run(tmp_path, ("truth", "typo"))
    assert not (tmp_path / "runs").exists()
    with pytest.raises(UnknownNameError, match="no such suite; got 'qick'"):
        case_names("qick")


def test_the_callers_threads_and_warnings_stay(tmp_path: Path) -> None:
    import warnings

    threads, filters = torch.get_num_threads(), list(warnings.filters)
    state = torch.get_rng_state()
    torch.set_num_threads(2)
    try:
        run_suite(CASES[:1], ("random",), folder=tmp_path, budget=BUDGET, progress=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert warnings.filters == filters
    assert torch.equal(torch.get_rng_state(), state)


def test_a_folder_of_another_budget_or_run_is_refused(rows: Any) -> None:
    folder, _ = rows
    with pytest.raises(InvalidArgumentError) as caught:
        run_suite(CASES, QUICK, folder=folder, budget=Budget(samples=9, draws=100))
    assert str(caught.value) == (
        f"{folder} belongs to another run; got budget_samples=9; wanted budget_samples=8; next "
        "step: use another folder, or remove this one to start over"
    )
    with hold(folder), pytest.raises(BusyFolderError, match="another run is at work in"):
        run(folder)


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", "swapped"])
def test_a_damaged_row_is_named(damage: str, rows: Any, tmp_path: Path) -> None:
    files = sorted((rows[0] / "runs").glob("*.json"))
    broken = tmp_path / "runs" / files[0].name
    broken.parent.mkdir()
    broken.write_text(files[1].read_text() if damage == "swapped" else damage)
    for read in (read_rows, run):
        with pytest.raises(UnreadableFileError, match=r"is no run of the benchmark; got .*remove"):
            read(tmp_path)


def test_a_full_disk_leaves_no_row_and_a_broken_case_leaves_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble: list[Exception] = [UnwritableFileError("full"), RuntimeError("broken")]

    def make(name: str, folder: Path) -> Any:
        raise trouble.pop(0)

    monkeypatch.setattr(runner, "make_case", make)
    with pytest.raises(UnwritableFileError, match="full"):
        run_suite(CASES[:1], ("truth",), folder=tmp_path, budget=BUDGET, progress=False)
    assert read_rows(tmp_path) == []
    (row,) = run_suite(CASES[:1], ("truth",), folder=tmp_path, budget=BUDGET, progress=False)
    assert (row["status"], row["reason"]) == ("failed", "RuntimeError: broken")


class Pool:
    """joblib.Parallel in one process, whose workers die at the jobs named."""

    def __init__(self, deadly: tuple[str, ...], once: tuple[str, ...]) -> None:
        self.deadly, self.once, self.handed = deadly, set(once), []

    def __call__(self, work: Any, groups: list[list[Job]], workers: int, progress: bool) -> None:
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        self.handed.append([group[0].case.split("/")[0] for group in groups])
        for group in groups:
            for job in group:
                if job.case in self.deadly or job.case in self.once:
                    self.once.discard(job.case)
                    raise TerminatedWorkerError("died")
                work([job])


def test_a_dying_worker_costs_the_job_that_kills_it_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = ("previous/zero/edge", "offset/zero/edge", "sink/zero/edge", "skip/zero/edge")
    pool = Pool(deadly=cases[:1], once=cases[2:3])
    monkeypatch.setattr(scatter, "_parallel", pool)
    how = {"folder": tmp_path, "budget": BUDGET, "progress": False, "workers": 2}
    found = run_suite(cases, ("truth",), **how)
    assert [row["status"] for row in found] == ["failed", "ok", "ok", "ok"]
    assert found[0]["reason"] == "its process died twice: killed from outside, or out of memory"
    assert pool.handed == [
        ["previous", "offset", "sink", "skip"],  # two at work when one dies: the first two
        ["previous"],
        ["offset"],
        ["sink", "skip"],
        ["sink"],
        ["skip"],
    ]


def test_other_trouble_of_a_worker_is_told_in_four_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no such host")

    monkeypatch.setattr(scatter, "_parallel", broken)
    with pytest.raises(ImirError) as caught:
        run(tmp_path, workers=2)
    assert str(caught.value) == (
        "a worker of loky failed; got RuntimeError: no such host; wanted every case run to its "
        "end; next step: mend that, and start the same command again: what is finished is kept"
    )


def test_tables_are_drawn_from_rows_alone(rows: Any, tmp_path: Path) -> None:
    folder, found = rows
    read = read_rows(folder)
    assert sorted(map(str, read)) == sorted(map(str, found))
    import pandas

    json_file, parquet = write_rows(read, tmp_path)
    assert len(pandas.read_parquet(parquet)) == len(found)
    assert json_file.exists()
    written = write_report(read, tmp_path, figures=True)
    assert all(path.stat().st_size > 0 for path in written)
    (best,) = [
        row
        for row in leaderboard(read)
        if (row["cases"], row["granularity"], row["ablation"], row["method"])
        == ("all", "edge", "all", "imir")
    ]
    assert (best["ok"], best["auc"], best["auc_low"]) == (1, 1.0, 1.0)
    assert "| imir | 1.000 [1.00, 1.00] |" in markdown(read)


def test_a_point_is_on_the_front_when_nothing_is_better_and_cheaper() -> None:
    def row(name: str, auc: float, seconds: float) -> dict[str, Any]:
        fixed = {"status": "ok", "granularity": "edge", "forwards": 1, "backwards": 0}
        return {**fixed, "method": name, "auc": auc, "cpu_seconds": seconds}

    points = pareto([row("a", 0.9, 1.0), row("b", 0.8, 2.0), row("c", 0.95, 3.0)])
    assert {p["method"]: p["front"] for p in points} == {"a": True, "b": False, "c": True}


def test_an_interval_over_cases_holds_its_mean() -> None:
    mean, low, high = mean_interval([0.0, 1.0, 1.0, 1.0])
    assert low <= mean == 0.75 <= high


def test_core_is_as_large_as_promised() -> None:
    names = case_names("core")
    assert len(set(names)) == len(names) >= 60
    assert set(case_names("quick")) <= set(names) < set(case_names("full")) | set(names)
    assert {name.split("/")[2] for name in names} == {"edge", "head", "unit"}
    assert sum("~" in name for name in names) == 18
