"""Tables of a finished suite: flat rows on disk, the leaderboard, and the data of its figures.

Everything here reads rows; nothing runs a model. Means over cases carry a 95 % percentile bootstrap
over cases. Runs that were declined or failed are counted beside the mean, never dropped silently.
Negative controls have a table of their own (`imir_detect.benchmark.meaning`).
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from imir_detect.benchmark.cases import GRANULARITIES
from imir_detect.benchmark.meaning import calibration, controls
from imir_detect.benchmark.metrics import DRAWS
from imir_detect.benchmark.run import METRICS, read_row
from imir_detect.errors import ImirError
from imir_detect.files import write_atomically
from imir_detect.strict import json_text

Row = dict[str, Any]
SHOWN = ("auc", "auc_stair", "ap", "precision", "shd", "faithfulness", "kl", "cpr", "cmd")
DRAWN = {"pareto": "pareto", "heatmap": "cases"}  # file: figure
COST = ("forwards", "backwards", "seconds", "cpu_seconds")


def write_rows(rows: Sequence[Row], folder: Path) -> tuple[Path, Path]:
    """The rows as FOLDER/rows.json and FOLDER/rows.parquet (one column a field)."""
    try:
        import pandas
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImirError(
            "tables need pandas and pyarrow",
            got=str(error),
            todo="pip install 'imir-detect[bench]'",
        ) from error
    write_atomically(folder / "rows.json", json_text(list(rows)).encode())
    table = io.BytesIO()
    pandas.DataFrame(list(rows)).to_parquet(table, index=False)
    write_atomically(folder / "rows.parquet", table.getvalue())
    return folder / "rows.json", folder / "rows.parquet"


def read_rows(folder: Path) -> list[Row]:
    """Every finished run in a folder, in order of case and method."""
    rows = [read_row(file) for file in sorted((folder / "runs").glob("*.json"))]
    return sorted(rows, key=lambda row: (row["case"], row["method"], json.dumps(_budget(row))))


def _budget(row: Row) -> Row:
    return {name: value for name, value in row.items() if name.startswith("budget_")}


def mean_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float, float]:
    """Mean and its 95 % percentile bootstrap.

    >>> mean_interval([1.0, 1.0])
    (1.0, 1.0, 1.0)
    """
    if not values:
        return math.nan, math.nan, math.nan
    array = np.array(values, dtype=float)
    generator = np.random.default_rng(seed)
    means = array[generator.integers(len(array), size=(DRAWS, len(array)))].mean(1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(array.mean()), float(low), float(high)


def leaderboard(rows: Iterable[Row]) -> list[Row]:
    """One row a group of cases, a granularity, an ablation and a method, best AUC first: `ok`,
    `declined`, `failed` runs, and for every metric its mean, `_low` and `_high`."""
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        if row["source"] == "control":
            continue
        for source in (row["source"] or "unknown", "all"):
            for ablation in (row["ablation"], "all"):
                key = (source, row["granularity"], ablation, row["method"])
                groups.setdefault(key, []).append(row)
    table = []
    for (source, granularity, ablation, method), members in groups.items():
        if source == "unknown":
            continue
        done = [row for row in members if row["status"] == "ok"]
        entry: Row = {
            "cases": source,
            "granularity": granularity,
            "ablation": ablation,
            "method": method,
            "ok": len(done),
            "declined": sum(row["status"] == "declined" for row in members),
            "failed": sum(row["status"] == "failed" for row in members),
        }
        for name in (*SHOWN, *COST):
            mean, low, high = mean_interval([row[name] for row in done])
            entry |= {name: mean, f"{name}_low": low, f"{name}_high": high}
        table.append(entry)
    order = {"planted": 0, "trained": 1, "all": 2}
    return sorted(
        table,
        key=lambda r: (
            r["granularity"],
            order.get(r["cases"], 3),
            r["ablation"],
            -(r["auc"] if r["ok"] else -1.0),
            r["method"],
        ),
    )


def pareto(rows: Iterable[Row]) -> list[Row]:
    """Accuracy against cost, one row a method: mean AUC, median seconds (of processor time), and
    whether no other method is both better and cheaper. Edges only; floor and ceiling left out."""
    by_method: dict[str, list[Row]] = {}
    for row in rows:
        if row["auc"] is not None and row["granularity"] == "edge":
            by_method.setdefault(row["method"], []).append(row)
    points = [
        {
            "method": method,
            "auc": float(np.mean([row["auc"] for row in members])),
            "seconds": float(np.median([row["cpu_seconds"] for row in members])),
            "passes": float(np.median([row["forwards"] + row["backwards"] for row in members])),
        }
        for method, members in by_method.items()
        if method not in ("truth", "random")
    ]
    for point in points:
        point["front"] = not any(
            other["auc"] >= point["auc"]  # type: ignore[operator]
            and other["seconds"] <= point["seconds"]  # type: ignore[operator]
            and (other["auc"], other["seconds"]) != (point["auc"], point["seconds"])
            for other in points
        )
    return sorted(points, key=lambda point: point["seconds"])


def heatmap(rows: Iterable[Row]) -> tuple[list[str], list[str], list[list[float | None]]]:
    """Cases, methods, and the AUC of each pair (None where it was not scored)."""
    rows = list(rows)
    cases = list(dict.fromkeys(row["case"] for row in rows if row["auc"] is not None))
    methods = [entry["method"] for entry in _overall(rows)]
    cells = {(row["case"], row["method"]): row["auc"] for row in rows}
    return cases, methods, [[cells.get((case, m)) for m in methods] for case in cases]


def _overall(rows: list[Row]) -> list[Row]:
    found: dict[str, Row] = {}
    for entry in leaderboard(rows):
        if entry["cases"] == "all" and entry["ablation"] == "all":
            found.setdefault(entry["method"], entry)
    return sorted(found.values(), key=lambda entry: -(entry["auc"] if entry["ok"] else -1.0))


# -- files ----------------------------------------------------------------------------------------


def write_report(rows: Sequence[Row], folder: Path, *, figures: bool = True) -> list[Path]:
    """leaderboard.csv, leaderboard.md, cases.csv, controls.csv, calibration.csv, and with `figures`
    pareto.svg, heatmap.svg."""
    files = {
        "leaderboard.csv": _csv(leaderboard(rows)),
        "cases.csv": _csv([_short(row) for row in rows]),
        "controls.csv": _csv(controls(rows)),
        "calibration.csv": _csv(calibration(rows)),
        "leaderboard.md": markdown(rows).encode(),
    }
    ranked = [row for row in rows if row["source"] != "control"]
    if figures and ranked:
        files |= {f"{name}.svg": _svg(shown, ranked) for name, shown in DRAWN.items()}
    for name, data in files.items():
        write_atomically(folder / name, data)
    return [folder / name for name in files]


def _short(row: Row) -> Row:
    kept = ("case", "source", "truth", "items", "right", "wrong", "method", "status", "reason")
    return {**{name: row[name] for name in kept}, **{name: row[name] for name in METRICS}}


def _csv(rows: list[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: _round(v) for k, v in row.items()})
    return text.getvalue().encode()


def _svg(name: str, rows: Sequence[Row]) -> bytes:
    from imir_detect.report.figures import figure

    drawn = figure(name, rows, backend="matplotlib")
    import matplotlib

    image = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "imir-detect"}):  # the same figure, the same file
        drawn.savefig(image, format="svg", metadata={"Date": None})
    return image.getvalue()


def _round(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def markdown(rows: Sequence[Row]) -> str:
    """The leaderboard as text: one table for each group of cases and granularity, then what scores
    mean from model to model."""
    lines: list[str] = []
    table = leaderboard(rows)
    for granularity in GRANULARITIES:
        for source in ("planted", "trained", "all"):
            chosen = [r for r in table if r["cases"] == source and r["granularity"] == granularity]
            if not chosen:
                continue
            lines += [f"### {granularity}s, {source} cases", ""]
            lines += _auc_table(chosen)
            lines += [""]
    told = [row for row in controls(rows) if row["kind"] == "all"]
    for title, found in (("negative controls", told), ("calibration", calibration(rows))):
        if found:
            lines += [f"### {title}", "", *_plain_table(found), ""]
    return "\n".join(lines)


def _auc_table(chosen: list[Row]) -> list[str]:
    by = {(r["method"], r["ablation"]): r for r in chosen}
    methods = [r["method"] for r in chosen if r["ablation"] == "all"]
    kinds = [a for a in ("zero", "mean", "resample") if any(r["ablation"] == a for r in chosen)]
    head = ["method", "ROC AUC", *(f"AUC, {kind}" for kind in kinds), "AP", "SHD"]
    head += ["faithfulness", "KL", "CPR", "CMD", "passes", "CPU seconds", "cases"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for method in methods:
        r = by[(method, "all")]
        counts = f"{r['ok']}" + (f" (+{r['declined']} declined)" if r["declined"] else "")
        counts += f" (+{r['failed']} failed)" if r["failed"] else ""
        cells = [method, _band(r, "auc")]
        cells += [_band(by[(method, k)], "auc") if (method, k) in by else "-" for k in kinds]
        cells += [f"{r[name]:.2f}" for name in ("ap", "shd", "faithfulness", "kl", "cpr", "cmd")]
        cells += [f"{r['forwards'] + r['backwards']:.0f}", f"{r['cpu_seconds']:.3g}", counts]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _plain_table(rows: list[Row]) -> list[str]:
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    for row in rows:
        cells = [f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _band(row: Row, name: str) -> str:
    if not row["ok"]:
        return "-"
    return f"{row[name]:.3f} [{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]"
