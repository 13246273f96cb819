"""How far certified brackets agree with exhaustive search, where both can be had.

    OMP_NUM_THREADS=1 python benchmarks/leaderboard/bracket_check.py [--folder runs/bench]

The trained models of two layers and one head have 12 edges: all 4,096 subsets are tried. Here they
are bracketed as larger graphs are, on the same prompts, and the labels of the two are compared.
Prints one line a case and the totals: labels that both give, that the bracket leaves open, and that
contradict. Models are trained on first use and kept in the folder.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import torch

from imir_detect.benchmark.cases import TRUTH_SEED, labels_of
from imir_detect.benchmark.trained import TRAINED, trained_case
from imir_detect.benchmark.truth import bracketed_circuits
from imir_detect.models.planted_truth import ABLATIONS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/bench"))
    folder = parser.parse_args().folder
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    total = {"right": 0, "wrong": 0, "left open": 0, "contradicted": 0}
    for name in TRAINED:
        for ablation in ABLATIONS:
            case = trained_case(name, ablation, folder=folder / "models")
            exact = case.labels
            assert exact is not None
            model = case.patched(64, seed=TRUTH_SEED)
            found = labels_of(bracketed_circuits(model), case.edges, "edge", source="bracketed")
            counts = {
                "right": len(found.positive & exact.positive),
                "wrong": len(found.negative & exact.negative),
                "left open": len(
                    (exact.positive | exact.negative) - found.positive - found.negative
                ),
                "contradicted": len(found.positive - exact.positive)
                + len(found.negative - exact.negative),
            }
            print(case.name, counts, flush=True)
            total = {key: total[key] + counts[key] for key in total}
    print("all", total)


if __name__ == "__main__":
    main()
