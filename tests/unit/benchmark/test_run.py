"""The runner: resumes, repeats, scatters, and keeps what failed with its reason."""

from pathlib import Path
from typing import Any

import pytest
import torch

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
from imir_detect.benchmark.run import CLOCK, run_suite
from imir_detect.benchmark.suites import case_names
from imir_detect.errors import InvalidArgumentError, UnknownNameError

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


def test_an_area_can_be_recomputed_from_its_row(rows: Any) -> None:
    for row in rows[1]:
        scores, labels = item_scores(row)
        if row["method"] != "random":  # of which the first draw is kept, and the mean shown
            assert auc(scores[labels == 1], scores[labels == 0]) == pytest.approx(row["auc"])


def test_two_workers_give_the_rows_of_one(rows: Any, tmp_path: Path) -> None:
    assert timeless(run(tmp_path, workers=2)) == timeless(rows[1])


def test_a_dask_cluster_gives_them_too(rows: Any, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    import warnings

    with (
        warnings.catch_warnings(),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        warnings.simplefilter("ignore")
        assert timeless(run(tmp_path, workers=2, backend="dask")) == timeless(rows[1])


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
