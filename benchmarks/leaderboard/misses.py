"""Where ours ranks a wrong edge above a right one: both edges, as read, patched and by ACDC.

    python benchmarks/leaderboard/misses.py [--folder runs/bench]

Reads the finished runs of a folder (`imir-detect bench run core --seed 2026`), runs nothing, and
writes results/misses.md: a line for every pair of edges that `imir` has in the wrong order on a
case of edges, with its scores (nats), those of exact patching (nats of the logit difference) and
the thresholds at which ACDC removes them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from imir_detect.benchmark.graph import all_edges
from imir_detect.benchmark.results import read_rows

RESULTS = Path(__file__).parent / "results"
SHOWN = ("imir", "edge-patching", "acdc")
HEADS = {12: 1, 29: 2}  # edges of two layers: heads a layer


def pairs(mine: dict[str, dict[str, Any]]) -> list[str]:
    """Lines for one case, from its rows by method."""
    row = mine["imir"]
    edges, marks = all_edges(2, HEADS[row["items"]]), row["item_labels"]
    scores = {name: [float(text) for text in mine[name]["item_scores"].split()] for name in SHOWN}
    right = [i for i, mark in enumerate(marks) if mark == "+"]
    wrong = [i for i, mark in enumerate(marks) if mark == "-"]
    found = []
    for i in right:
        for j in wrong:
            if scores["imir"][j] >= scores["imir"][i]:
                told = [f"{scores[name][k]:.3g}" for name in SHOWN for k in (i, j)]
                found.append([row["case"], str(edges[i]), str(edges[j]), *told])
    return ["| " + " | ".join(cells) + " |" for cells in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/bench"))
    rows = read_rows(parser.parse_args().folder)
    by_case: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row["status"] == "ok" and row["granularity"] == "edge" and row["auc"] is not None:
            by_case.setdefault(row["case"], {})[row["method"]] = row
    missed = {case: mine for case, mine in by_case.items() if mine["imir"]["auc"] < 1}
    head = ["case", "right, ranked below", "wrong"]
    head += [f"{name}, {which}" for name in SHOWN for which in ("right", "wrong")]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for mine in missed.values():
        lines += pairs(mine)
    areas = [
        f"{case}: AUC of " + ", ".join(f"{name} {mine[name]['auc']:.3f}" for name in SHOWN)
        for case, mine in missed.items()
    ]
    text = "\n".join([*lines, "", *(f"- {line}" for line in areas)]) + "\n"
    (RESULTS / "misses.md").write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
