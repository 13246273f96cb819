"""Planted circuits of every kind, at growing noise: what is found, and where it breaks.

    python benchmarks/zoo/planted.py            # all; --quick for one seed

A model counts as found when the circuit of its kind is named with exactly the planted heads and,
for kinds that answer from the context, the planted composition edges (head to head and head to
output), and no other circuit that answers, suppresses or matches is said to work. Heads that attend
to a fixed place or to the earlier copy do so by plan (feeders, distractors) and are no strays.
Noise is the Frobenius norm of Gaussian noise on every head's weights, as a share of the planted
ones'.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
FIELDS = ("kind", "variant", "seed", "noise", "found", "named")
NOISES = (0.0, 0.2, 0.4, 0.8, 1.6)
VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("smallest width", {}),
    ("twice as wide, four heads", {"d_model": 144, "heads": 4}),
    ("three layers, LN, wide", {"d_model": 112, "layers": 3, "norm": "LN"}),
    ("RMS, distractors", {"norm": "RMS", "heads": 3, "distractors": 2}),
    ("split feeders", {"feeders": "split", "heads": 3}),
    ("redundant feeders", {"feeders": "redundant", "heads": 3}),
    ("two readers", {"readers": 2}),
    ("one layer", {"layers": 1, "reader_layer": 0}),
)


def models(seeds: int) -> Iterator[tuple[str, Any]]:
    """(variant, specification without noise) of every model that can be planted."""
    from imir_detect.errors import InvalidArgumentError
    from imir_detect.models.planted import FED, KINDS, PlantedSpec

    for kind in KINDS:
        for name, changes in VARIANTS:
            if kind == "none" and ("readers" in changes or "feeders" in changes):
                continue
            if kind not in FED and "feeders" in changes:
                continue
            if kind == "in_weights":
                changes = {**changes, "by_head": "reader" in name or "width" in name}
            for seed in range(seeds):
                try:
                    yield name, PlantedSpec(kind, **changes, seed=seed)
                except InvalidArgumentError:
                    break


def judge(spec: Any) -> tuple[bool, str]:
    """Whether exactly the planted circuit was read, and what was read instead."""
    from imir_detect import detect_circuits
    from imir_detect.circuits.core import IN_CONTEXT
    from imir_detect.coordinates.pathsum import EMBED
    from imir_detect.models.planted import build, jobs, relation_of
    from imir_detect.models.planted_truth import truth_of

    relation = relation_of(spec) if spec.kind == "in_weights" else None
    report = detect_circuits(build(spec), relation=relation)
    answering = (*IN_CONTEXT, "skip", "in_weights", "suppression", "prefix_match")
    named = "; ".join(f"{c.kind} {c.heads} {c.strength:.2f}" for c in report.circuits)
    planted = {job.head for job in jobs(spec) if job.role != "distractor"}
    strays = [c for c in report.circuits if c.works and c.kind in answering and c.kind != spec.kind]
    if spec.kind == "induction_long_prefix":  # where one copy stands alone, one token is enough
        strays = [c for c in strays if c.kind != "induction" or not set(c.heads) <= planted]
    if spec.kind == "none":
        return not strays, named
    # A duplicate-token head attends to the query's own place just as much: half is all it can have.
    own = [
        c for c in report.circuits if c.kind == spec.kind and (c.works or c.kind not in answering)
    ]
    own = [c for c in own if set(c.heads) & planted or not planted]
    heads = {head for c in own for head in c.heads}
    edges = {e for c in own for e in c.edges if e.source != EMBED}
    wanted = {e for e in truth_of(spec, "zero").edges if e.source != EMBED}
    same = edges == wanted or spec.kind not in (*IN_CONTEXT, "skip")
    return bool(own) and heads == planted and same and not strays, named


def main() -> None:
    from dataclasses import replace

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=2, help="rotations of each model")
    parser.add_argument("--target", type=Path, help="CSV; what is there is not read again")
    parser.add_argument("--noises", type=float, nargs="*", default=NOISES)
    args = parser.parse_args()
    target = args.target or (None if args.quick else RESULTS / "planted.csv")
    rows = read_rows(target)
    done = {(r["kind"], r["variant"], r["seed"], r["noise"]) for r in rows}
    for noise in args.noises:
        for name, spec in models(1 if args.quick else args.seeds):
            if (spec.kind, name, spec.seed, noise) in done:
                continue
            found, named = judge(replace(spec, noise=noise))
            row = dict(zip(FIELDS, (spec.kind, name, spec.seed, noise, found, named), strict=True))
            rows.append(row)
            if target is not None:
                write_row(target, row)
            if not found and noise <= 0.2:
                print(row, flush=True)
    summarise(rows, args.noises)
    if target is not None:
        draw(rows, args.noises, target.with_suffix(".svg"))


def read_rows(target: Path | None) -> list[dict[str, Any]]:
    """What an earlier run wrote."""
    if target is None or not target.exists():
        return []
    with target.open(newline="") as stream:
        return [
            {
                **r,
                "seed": int(r["seed"]),
                "noise": float(r["noise"]),
                "found": r["found"] == "True",
            }
            for r in csv.DictReader(stream)
        ]


def write_row(target: Path, row: dict[str, Any]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = not target.exists()
    with target.open("a", newline="") as stream:
        writer = csv.DictWriter(stream, FIELDS)
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def summarise(rows: list[dict[str, Any]], noises: list[float]) -> None:
    from tables import wilson

    for noise in noises:
        own = [r["found"] for r in rows if r["noise"] == noise]
        low, high = wilson(sum(own), len(own))
        print(
            f"noise {noise}: {sum(own)} of {len(own)} planted models read exactly "
            f"({low:.3f}, {high:.3f})"
        )


def draw(rows: list[dict[str, Any]], noises: list[float], target: Path) -> None:
    """Share read exactly against noise, one line a kind."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    for number, kind in enumerate(dict.fromkeys(row["kind"] for row in rows)):
        shares = []
        for noise in noises:
            own = [r["found"] for r in rows if (r["kind"], r["noise"]) == (kind, noise)]
            shares.append(sum(own) / len(own))
        style = "o-" if number < 7 else "s--"  # colours would repeat
        axes.plot(noises, shares, style, color=f"C{number % 7}", label=kind)
    axes.set_xlabel("noise, as a share of the planted norm")
    axes.set_ylabel("planted models read exactly")
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
