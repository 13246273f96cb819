"""Time of ours, EAP and ACDC on one model after the other, at three sizes, in one run.

    OMP_NUM_THREADS=1 python benchmarks/leaderboard/speed.py           # a minute on one core, 2 GB
    OMP_NUM_THREADS=1 python benchmarks/leaderboard/speed.py --quick   # the smallest size

Each model is a planted induction circuit with LayerNorm and noise on every head, under resample
ablation. All methods get 8 prompts or contexts of the same length and run in float64 on one thread.
Processor seconds count, which other work on the machine disturbs little; wall seconds stand beside
them. Medians of several runs (of one at the largest size, and for ACDC). ACDC is one walk at one
threshold; from the middle size on a seeded sample of its edges is timed and scaled to all of them,
and marked so. Weights are read before the clock starts.

Every row is written as soon as it is there, to results/speed.csv, and a second start goes on after
the last one; `--again` starts over. The ratios are in results/speed.md.
"""

from __future__ import annotations

import argparse
import csv
import resource
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from imir_detect.benchmark.cases import Case, planted_case
from imir_detect.benchmark.contract import Budget, find_method
from imir_detect.benchmark.methods.acdc import kl_to_whole
from imir_detect.models.planted import PlantedSpec

RESULTS = Path(__file__).parent / "results"
SIZES = {
    "2 x 2": PlantedSpec("induction", layers=2, heads=2, norm="LN", noise=0.1),
    "6 x 8, d_model 512": PlantedSpec(
        "induction", layers=6, heads=8, d_model=512, d_head=64, vocab=64, context=24, norm="LN",
        noise=0.1, distractors=12,
    ),
    "12 x 12, d_model 768": PlantedSpec(
        "induction", layers=12, heads=12, d_model=768, d_head=64, vocab=64, context=24, norm="LN",
        noise=0.1, distractors=36,
    ),
}  # fmt: skip
REPEATS = {"2 x 2": 5, "6 x 8, d_model 512": 3, "12 x 12, d_model 768": 1}
SAMPLED = {"6 x 8, d_model 512": 40, "12 x 12, d_model 768": 12}  # edges of ACDC that are timed
METHODS = ("imir", "eap", "acdc")
BUDGET = Budget(samples=8, seed=0)
TAU = 1e-3
Row = dict[str, str]
Clock = tuple[float, float]  # processor seconds, wall seconds


def clock(run: Callable[[], object], repeats: int) -> Clock:
    times = []
    for _ in range(repeats):
        start = time.process_time(), time.perf_counter()
        run()
        times.append((time.process_time() - start[0], time.perf_counter() - start[1]))
    return tuple(statistics.median(side) for side in zip(*times, strict=True))  # type: ignore[return-value]


def acdc_clock(case: Case, sample: int | None) -> Clock:
    """One walk at one threshold; with `sample`, of that many edges drawn at random, scaled."""
    found = {}

    def prepare() -> None:
        found["model"] = case.patched(BUDGET.samples, seed=BUDGET.seed)
        found["model"].full_logits  # noqa: B018  (computed once, before the walk)

    setup = clock(prepare, 1)
    model = found["model"]
    walk = list(reversed(range(model.size)))
    if sample is not None:
        chosen = torch.randperm(model.size, generator=torch.Generator().manual_seed(0))[:sample]
        walk = sorted(chosen.tolist(), reverse=True)

    def walk_once() -> None:
        keep, before = torch.ones(model.size, dtype=torch.float64), 0.0
        with torch.no_grad():
            for index in walk:
                keep[index] = 0.0
                now = kl_to_whole(model, model.run(keep, first=model.first_layer(index)))
                if now - before < TAU:
                    before = now
                else:
                    keep[index] = 1.0

    scale = model.size / len(walk)
    spent = clock(walk_once, 1)
    return setup[0] + scale * spent[0], setup[1] + scale * spent[1]


def measure(size: str, method: str, case: Case) -> Row:
    if method == "acdc":
        spent = acdc_clock(case, SAMPLED.get(size))
    else:
        run = find_method(method).run
        if size == "2 x 2":
            run(case, budget=BUDGET)  # warm: allocators and libraries
        spent = clock(lambda: run(case, budget=BUDGET), REPEATS[size])
    sampled = method == "acdc" and size in SAMPLED
    return {
        "size": size,
        "edges": str(len(case.edges)),
        "method": method,
        "cpu_seconds": f"{spent[0]:.4g}",
        "wall_seconds": f"{spent[1]:.4g}",
        "how": f"{SAMPLED[size]} edges timed, scaled" if sampled else "whole",
        "peak_memory_mb": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}",
        "threads": str(torch.get_num_threads()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the smallest size, nothing written")
    parser.add_argument("--again", action="store_true", help="measure every row anew")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    file = RESULTS / "speed.csv"
    table: list[Row] = []
    if file.exists() and not (given.quick or given.again):
        with file.open(newline="", encoding="utf-8") as stream:
            table = list(csv.DictReader(stream))
    for size in list(SIZES)[: 1 if given.quick else None]:
        left = [m for m in METHODS if (size, m) not in {(r["size"], r["method"]) for r in table}]
        if not left:
            continue
        case = planted_case(size, SIZES[size], "resample").blind()
        case.weights  # noqa: B018  (read once, before the clock)
        for method in left:
            table.append(measure(size, method, case))
            print(table[-1], flush=True)
            if not given.quick:
                write(table, file)
    print(ratios(table))


def write(table: list[Row], file: Path) -> None:
    """The table so far; the largest size comes last and takes longest."""
    RESULTS.mkdir(exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    file.with_suffix(".md").write_text(ratios(table) + "\n", encoding="utf-8")


def ratios(table: list[Row]) -> str:
    """One line a size: processor seconds of the three, and how often ours goes into the others."""
    head = ["size", "edges", *(f"{m}, CPU s" for m in METHODS), "acdc", "eap / imir", "acdc / imir"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for size in dict.fromkeys(row["size"] for row in table):
        by = {row["method"]: row for row in table if row["size"] == size}
        spent = {m: float(by[m]["cpu_seconds"]) for m in METHODS if m in by}
        cells = [size, next(iter(by.values()))["edges"]]
        cells += [f"{spent[m]:.3g}" if m in spent else "-" for m in METHODS]
        cells.append(by["acdc"]["how"] if "acdc" in by else "-")
        for other in ("eap", "acdc"):
            there = other in spent and "imir" in spent
            cells.append(f"{spent[other] / spent['imir']:.3g}" if there else "-")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
