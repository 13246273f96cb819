"""Coordinates over the training of a TransformerLens model on recall, in one figure.

python benchmarks/paper/tracking.py [--quick]
"""

from __future__ import annotations

import time

import torch
from _table import figure, options, save

from imir_detect.tasks.base import measure
from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.training.tracking import CoordinateTracker
from imir_detect.weights.native import ModelSpec


def main() -> None:
    chosen = options(__doc__)
    steps = 300 if chosen.quick else 1500
    task = AssociativeRecall(n_blocks=8, rare_frequency=0.5, variability=0.5)
    model = ModelSpec(task.vocab_size, task.length).boot(seed=chosen.seed)
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    generator = torch.Generator().manual_seed(chosen.seed)
    tracker = CoordinateTracker(model, relation=task.relation)
    tracking = 0.0
    begin = time.process_time()
    for step in range(steps):
        batch = task.sample(128, generator=generator)
        logits = model.original_model(batch.tokens)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        start = time.process_time()
        tracker(step, loss=float(loss.detach()))
        tracking += time.process_time() - start
    total = time.process_time() - begin
    model.eval()
    with torch.no_grad():
        measured = measure(task, lambda t, p: model.original_model(t), n=1024)
    note = (
        f"Two layers, one head, d_model 64, {steps} steps of AdamW on recall with f_r = f_v = .5; "
        f"recorded every 50 steps. Tracking took {tracking / (total - tracking):.2%} on top of "
        "training (CPU time; wanted: under 5 %). Measured at the end: "
        + ", ".join(f"{k} {v:.2f}" for k, v in measured.items())
    )
    save(tracker.history, chosen.out, "tracking", note)
    figure(chosen.out, "tracking", tracker.plot)


if __name__ == "__main__":
    main()
