"""Tokens a second of every task's sampler, on one core, and the memory that a batch takes.

    python benchmarks/tasks_speed.py            all tasks; writes results/tasks_speed.md
    python benchmarks/tasks_speed.py --quick    one short timing each, printed and not kept

One thread. The rate is per second of this process's CPU time, so that other load on the machine
does not count, and the best of several rounds, for batches of 1,024. `ratio` sets it against the
million tokens a second that every task must reach, and `peak` is the most memory that one sample
of a batch took, in bytes for each of its tokens, measured on the tensors' allocations.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from imir_detect.tasks import REGISTRY, Task, make_task

RESULTS = Path(__file__).parent / "results" / "tasks_speed.md"
BATCH = 1024
WANTED = 1e6
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("recall", {"zipf": 1.0, "variability": 0.5, "present": 0.5, "offsets": "disjoint"}),
    ("ngram", {"block_length": 4, "offsets": "random"}),
    ("k_hop", {"hops": 4, "n_blocks": 12, "structure": "permutation"}),
    ("ioi", {"n_blocks": 1}),
    ("automaton", {"states": 6, "symbols": 5, "arcs": 3}),
    ("fragments", {"n_blocks": 12, "depth": 3, "binary": 2}),
    ("mixture", {"parts": ("ioi", "automaton", "fragments", "text")}),
    ("offset_copy", {"zipf": 1.0, "n_tokens": 128}),
]


def rate(task: Task, seconds: float, rounds: int) -> float:
    """Tokens a second, best round."""
    generator = torch.Generator().manual_seed(0)
    task.sample(BATCH, generator=generator)
    best = 0.0
    for _ in range(rounds):
        drawn, start = 0, time.process_time()
        while time.process_time() - start < seconds:
            task.sample(BATCH, generator=generator)
            drawn += BATCH * task.length
        best = max(best, drawn / (time.process_time() - start))
    return best


def peak(task: Task, batch: int) -> float:
    """Largest sum of live tensor bytes during one sample, per token."""
    generator = torch.Generator().manual_seed(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        task.sample(batch, generator=generator)
    live = most = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            most = max(most, live)
    return most / (batch * task.length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short timing each")
    options = parser.parse_args()
    torch.set_num_threads(1)
    head = "| task | knobs | M tokens/s | ratio | peak, 256 | peak, 4096 |"
    lines = [head, "|---|---|---|---|---|---|"]
    for name, knobs in [*((name, {}) for name in REGISTRY), *OTHERS]:
        task = make_task(name, **knobs)
        speed = rate(task, 0.05 if options.quick else 0.4, 1 if options.quick else 5)
        memory = [peak(task, size) for size in (256, 4096)]
        told = ", ".join(f"{k}={v}" for k, v in knobs.items()) or "defaults"
        sizes = " | ".join(f"{m:.0f} B/token" for m in memory)
        lines.append(f"| {name} | {told} | {speed / 1e6:.1f} | {speed / WANTED:.1f} | {sizes} |")
        print(lines[-1], flush=True)
    if not options.quick:
        about = (
            f"By `python benchmarks/tasks_speed.py`, one thread, CPU seconds, batches of {BATCH}, "
            f"torch {torch.__version__.split('+')[0]}. Bar: a ratio of at least 1, and "
            "memory per token that does not grow with the batch."
        )
        text = "\n".join(["# Speed of the samplers", "", about, "", *lines, ""])
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
