"""Train the four models that ship with the package, and write their cards.

    python benchmarks/train_shipped.py [icl iwl mixed none]

Each is a two-layer recall model; its name is the label that its *measured* behaviour earns, and
the script stops with an error where behaviour and name differ.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import asdict
from typing import Any

from imir_detect.tasks import make_task
from imir_detect.training.behaviour import measured_label
from imir_detect.training.loop import Recipe, describe, evaluate, train
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import save_model
from imir_detect.zoo import HOME, SHIPPED

SPEC: dict[str, dict[str, Any]] = {
    "icl": {"n_heads": 2, "d_model": 48, "d_head": 32},
    "iwl": {"n_heads": 2, "d_model": 48, "d_head": 32},
    "mixed": {"n_heads": 2, "d_model": 64, "d_head": 32, "norm": "LN"},
    "none": {"n_heads": 2, "d_model": 48, "d_head": 32},
}
TASK: dict[str, dict[str, Any]] = {
    "icl": {"rare_frequency": 0.5, "variability": 0.5},
    "iwl": {"rare_frequency": 0.0, "n_common": 64, "n_rare": 0, "present": 0.5},
    "mixed": {"rare_frequency": 0.85, "present": 0.5},
    "none": {"rare_frequency": 0.5},
}
RECIPE: dict[str, Recipe] = {
    "icl": Recipe(steps=4000, stop_at={"icl_accuracy": 0.995}, seed=1),
    "iwl": Recipe(steps=2500, stop_at={"iwl_accuracy": 0.995}, seed=2),
    "mixed": Recipe(
        steps=9000, rate=1e-3, stop_at={"icl_accuracy": 0.99, "iwl_accuracy": 0.99}, seed=3
    ),
    "none": Recipe(steps=1, rate=0.0, seed=4),
}


def main() -> None:
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or SHIPPED:
        task = make_task("recall", **TASK[name])
        spec = ModelSpec(task.vocab_size, task.n_positions, **SPEC[name])
        run = train(task, spec, RECIPE[name])
        measured = evaluate(run.model, task, n=8192)
        label = measured_label(measured)
        if label != name:
            raise SystemExit(f"{name}: behaves as {label}: {measured}")
        card = {
            "name": name,
            "label": label,
            "task": describe(task),
            "recipe": asdict(RECIPE[name]),
            "steps": run.history[-1]["step"],
            "measured": measured,
            "licence": "MIT",
        }
        save_model(run.model, spec, HOME / name, card)
        print(name, measured, flush=True)


if __name__ == "__main__":
    main()
