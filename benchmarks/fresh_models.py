"""Fresh models: 80 untrained ones at four scales of their weights, none of which holds a circuit.

    python benchmarks/fresh_models.py

Prints, for every scale, how many of 20 models got a label other than "none", a circuit that works,
a head with a role, or a relation; all should be zero.
"""

from __future__ import annotations

import warnings
from collections import Counter

from imir_detect import detect_circuits
from imir_detect.weights.native import ModelSpec


def main() -> None:
    warnings.simplefilter("ignore")
    for scale in (None, 0.3, 1.0, 3.0):
        false: Counter[str] = Counter()
        for seed in range(20):
            spec = ModelSpec(12, 24, n_layers=4, n_heads=4, d_model=72, d_head=24, init_range=scale)
            report = detect_circuits(spec.boot(seed=seed))
            false["label"] += report.label != "none"
            false["circuit"] += any(c.works for c in report.circuits)
            false["role"] += any(role != "none" for role in report.heads.column("role"))
            false["relation"] += report.meta["relation"]["named"] > 0
        print(f"scale {scale}: false of 20 models: {dict(false)}", flush=True)


if __name__ == "__main__":
    main()
