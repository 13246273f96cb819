"""What the causal-graph scripts share: graphs, judging a reading, resumable result tables."""

from __future__ import annotations

import argparse
import csv
import io
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from imir_detect.circuits.causal_graph import CausalGraph
from imir_detect.files import write_atomically
from imir_detect.tasks.latent_graph import LatentGraph, chain, pairs, random_forest

RESULTS = Path(__file__).parent / "results"
NODES = 19  # T = 20 with the query
Row = dict[str, object]


def options(description: str | None, methods: tuple[str, ...] = ()) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--full", action="store_true", help="the authors' settings (days on a CPU)")
    parser.add_argument("--seed", type=int, default=100, help="first seed of graphs and runs")
    parser.add_argument("--trees", type=int, default=20, help="how many random forests")
    parser.add_argument("--out", type=Path, default=None, help="result table (default: results/)")
    if methods:
        parser.add_argument("--method", choices=methods, default=methods[0])
    return parser.parse_args()


def graphs(trees: int, seed: int) -> dict[str, LatentGraph]:
    """Chain, pairs, and random forests in which a node is a root with probability 0.5."""
    named = {"chain": chain(NODES), "pairs": pairs(NODES)}
    return named | {f"forest-{s}": random_forest(NODES, seed=s) for s in range(seed, seed + trees)}


def judge(graph: LatentGraph, read: CausalGraph) -> Row:
    """Edges found and made up, roots with an edge, and the attention that misses true edges."""
    true, found = set(graph.edges), {(e.parent, e.child) for e in read.edges}
    kept: dict[tuple[int, int], float] = dict.fromkeys(graph.edges, 0.0)
    for c in read.candidates:
        edge = (c.parent, c.child)
        if edge in kept:
            chance = 1 / (c.child + 1)
            kept[edge] = max(kept[edge], c.confidence * (1 - chance) + chance)
    wrong_roots = sum(bool(read.parents[root]) for root in graph.roots)
    at_roots = [c.confidence for c in read.candidates if c.child in graph.roots]
    return {
        "edges": len(true),
        "found": len(true & found),
        "false": len(found - true),
        "roots": len(graph.roots),
        "roots_with_edge": wrong_roots,
        "missing_attention": round(1 - sum(kept.values()) / max(1, len(kept)), 4),
        "largest_root_confidence": round(max(at_roots, default=0.0), 4),
    }


def run(
    name: str,
    cases: Iterable[tuple[str, Callable[[], Row]]],
    out: Path | None,
) -> list[dict[str, str]]:
    """Run what the table lacks, one row a case, written as it comes. Returns the whole table."""
    path = out or RESULTS / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    table = read_table(path)
    done = {row["case"] for row in table}
    for case, measure in cases:
        if case in done:
            continue
        start = time.perf_counter()
        row = {"case": case, **measure(), "seconds": round(time.perf_counter() - start, 1)}
        table.append({key: str(value) for key, value in row.items()})
        write_table(path, table)
        print(row, flush=True)
    return table


def read_table(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def write_table(path: Path, table: list[dict[str, str]]) -> None:
    columns = list(dict.fromkeys(key for row in table for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    write_atomically(path, text.getvalue().encode())


def mean(table: list[dict[str, str]], column: str) -> float:
    return sum(float(row[column]) for row in table) / len(table)


def total(table: list[dict[str, str]], column: str) -> int:
    return sum(int(row[column]) for row in table)
