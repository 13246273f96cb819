"""Labels that are right under one ablation are wrong under another: the published tracr finding.

    python benchmarks/leaderboard/label_mismatch.py            # half a minute on one core
    python benchmarks/leaderboard/label_mismatch.py --quick

In the ACDC paper the labels of two compiled (tracr) models give perfect scores with zero ablation
(AUC 1.000) and poor ones with resample ablation (.679 and .200): edges that carry positions alone
are in those labels, and resampling the tokens leaves positions as they are. The same happens here
with planted circuits: every method is scored under resample and mean ablation against the labels of
zero ablation, and against matching ones. Writes results/label_mismatch.csv and .md.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from imir_detect.benchmark.cases import planted_case
from imir_detect.benchmark.contract import Budget, find_method
from imir_detect.benchmark.metrics import auc
from imir_detect.models.planted import PlantedSpec

RESULTS = Path(__file__).parent / "results"
METHODS = ("imir", "edge-patching", "acdc", "eap-ig-inputs", "mask-gradients", "edge-pruning")
MODELS = {
    kind: PlantedSpec(kind, noise=0.02, seed=60 + i)  # type: ignore[arg-type]
    for i, kind in enumerate(["previous_token", "position_sink", "induction", "skip"])
}
MODELS["in_weights by head"] = PlantedSpec("in_weights", by_head=True, noise=0.02, seed=70)


def rows(models: dict[str, PlantedSpec], methods: tuple[str, ...]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for name, spec in models.items():
        zero = planted_case(name, spec, "zero").labels
        assert zero is not None
        for ablation in ("zero", "mean", "resample"):
            case = planted_case(name, spec, ablation)  # type: ignore[arg-type]
            assert case.labels is not None
            for method in methods:
                scores = find_method(method).run(case.blind(), budget=Budget(seed=1)).values.numpy()
                areas = {}
                for key, labels in (("matching", case.labels), ("zero", zero)):
                    right = np.array([item in labels.positive for item in case.items])
                    areas[key] = auc(scores[right], scores[~right])
                found.append(
                    {
                        "model": name,
                        "ablation": ablation,
                        "method": method,
                        "auc_matching_labels": round(areas["matching"], 4),
                        "auc_labels_of_zero": round(areas["zero"], 4),
                    }
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two methods, nothing written")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    chosen = METHODS[:2] if quick else METHODS
    table = rows({k: replace(v) for k, v in MODELS.items()}, chosen)
    lines = ["| method | ablation | AUC, matching labels | AUC, labels of zero ablation |"]
    lines.append("|---|---|---|---|")
    for method in chosen:
        for ablation in ("zero", "mean", "resample"):
            mine = [r for r in table if (r["method"], r["ablation"]) == (method, ablation)]
            means = [
                float(np.mean([r[key] for r in mine]))  # type: ignore[arg-type]
                for key in ("auc_matching_labels", "auc_labels_of_zero")
            ]
            lines.append(f"| {method} | {ablation} | {means[0]:.3f} | {means[1]:.3f} |")
    print("\n".join(lines))
    if quick:
        return
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "label_mismatch.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    (RESULTS / "label_mismatch.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
