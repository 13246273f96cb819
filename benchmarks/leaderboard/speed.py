"""Time of ours, EAP and ACDC on one model after the other, at three sizes, in one run.

    OMP_NUM_THREADS=1 python benchmarks/leaderboard/speed.py           # some ten minutes, 4 GB
    OMP_NUM_THREADS=1 python benchmarks/leaderboard/speed.py --quick   # the smallest size

Each model is a planted induction circuit with LayerNorm and noise on every head, under resample
ablation. All methods get 8 prompts or contexts of the same length and run in float64 on one
thread; the median of three runs counts (of one for ACDC). ACDC is one walk at one threshold; from
the middle size on a seeded sample of its edges is timed and scaled to all of them, and marked so.
Weights are read before the clock starts. Writes results/speed.csv and .md.
"""

from __future__ import annotations

import argparse
import csv
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
BUDGET = Budget(samples=8, seed=0)
TAU = 1e-3
SAMPLED = {"6 x 8, d_model 512": 40, "12 x 12, d_model 768": 12}  # edges of ACDC that are timed


def seconds(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def acdc_seconds(case: Case, sample: int | None) -> float:
    """One walk at one threshold; with `sample`, of that many edges drawn at random, scaled."""
    start = time.perf_counter()
    model = case.patched(BUDGET.samples, seed=BUDGET.seed)
    model.full_logits  # noqa: B018  (computed once, before the walk)
    setup = time.perf_counter() - start
    size = len(model.edges)
    walk = list(reversed(range(size)))
    if sample is not None:
        chosen = torch.randperm(size, generator=torch.Generator().manual_seed(0))[:sample]
        walk = sorted(chosen.tolist(), reverse=True)
    keep = torch.ones(size, dtype=torch.float64)
    before = 0.0
    start = time.perf_counter()
    with torch.no_grad():
        for index in walk:
            target = model.edges[index].target
            keep[index] = 0.0
            first = case.weights.n_layers if isinstance(target, str) else target[0]
            now = kl_to_whole(model, model.run(keep, first=first))
            if now - before < TAU:
                before = now
            else:
                keep[index] = 1.0
    return setup + (time.perf_counter() - start) * size / len(walk)


def measure(name: str, spec: PlantedSpec) -> dict[str, object]:
    case = planted_case(name, spec, "resample").blind()
    case.weights  # noqa: B018  (read once, before the clock)
    once = {m: find_method(m).run for m in ("imir", "eap")}
    once["imir"](case, budget=BUDGET)  # warm: allocators and libraries
    ours = seconds(lambda: once["imir"](case, budget=BUDGET), 3)
    eap = seconds(lambda: once["eap"](case, budget=BUDGET), 3)
    acdc = acdc_seconds(case, SAMPLED.get(name))
    return {
        "size": name,
        "edges": len(case.edges),
        "imir_seconds": round(ours, 4),
        "eap_seconds": round(eap, 4),
        "acdc_seconds": round(acdc, 3),
        "acdc": f"{SAMPLED[name]} edges timed, scaled" if name in SAMPLED else "all edges",
        "eap_over_imir": round(eap / ours, 2),
        "acdc_over_imir": round(acdc / ours, 1),
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the smallest size, nothing written")
    parser.add_argument("--size", choices=SIZES, help="one size alone, nothing written")
    given = parser.parse_args()
    quick = given.quick or given.size is not None
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    table = []
    chosen = [given.size] if given.size else list(SIZES)[: 1 if quick else None]
    for name in chosen:
        table.append(measure(name, SIZES[name]))
        print(table[-1], flush=True)
        if not quick:
            write(table)


def write(table: list[dict[str, object]]) -> None:
    """The table so far; the largest size comes last and takes longest."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "speed.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    lines = ["| " + " | ".join(table[0]) + " |", "|" + "---|" * len(table[0])]
    lines += ["| " + " | ".join(str(v) for v in row.values()) + " |" for row in table]
    (RESULTS / "speed.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
