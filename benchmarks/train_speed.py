"""Time to 99 % on recall: a two-layer model of width 64 on fresh associations, 8 blocks.

    python benchmarks/train_speed.py

Prints steps, accuracy and seconds for two seeds.
"""

from __future__ import annotations

import time
import warnings

from imir_detect.tasks import make_task
from imir_detect.training.loop import Recipe, train
from imir_detect.weights.native import ModelSpec


def main() -> None:
    warnings.simplefilter("ignore")
    task = make_task("recall", rare_frequency=1.0, n_common=0, n_rare=64)
    spec = ModelSpec(task.vocab_size, task.n_positions, d_model=64, n_heads=1)
    for seed in (0, 1):
        start = time.perf_counter()
        recipe = Recipe(steps=2500, seed=seed, stop_at={"accuracy": 0.99})
        run = train(task, spec, recipe, progress=False)
        seconds = time.perf_counter() - start
        print(f"seed {seed}: reached {run.reached}, {run.measured}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
