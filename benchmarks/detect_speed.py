"""`detect_circuits` beside one forward pass of the same model, and the cost of the import.

    python benchmarks/detect_speed.py

Prints medians of 5 runs after a warm-up, in milliseconds, and their ratio.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import torch

IMPORT = """
import time, torch
start = time.perf_counter()
import imir_detect
print(time.perf_counter() - start)
"""


def median_ms(run: Callable[[], object], times: int = 5) -> float:
    run()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append(1e3 * (time.perf_counter() - start))
    return statistics.median(taken)


def main() -> None:
    warnings.simplefilter("ignore")
    from imir_detect import detect_circuits, shipped_model
    from imir_detect.zoo import SHIPPED

    print(f"threads: {torch.get_num_threads()}")
    for name in SHIPPED:
        model = shipped_model(name)
        tokens = torch.arange(model.cfg.n_ctx)[None].repeat(128, 1)
        with torch.no_grad():
            forward = median_ms(lambda model=model, tokens=tokens: model(tokens))
        detect = median_ms(lambda model=model: detect_circuits(model))
        print(
            f"{name}: detect {detect:.0f} ms, one forward pass of 128 sequences {forward:.1f} ms, "
            f"ratio {detect / forward:.0f}"
        )
    seconds = [
        float(
            subprocess.run(
                [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(5)
    ]
    print(f"import beyond torch: {1e3 * statistics.median(seconds):.0f} ms (median of 5)")


if __name__ == "__main__":
    main()
