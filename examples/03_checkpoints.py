# %% [markdown]
# # One model at several steps, side by side
# You will see the verdict turn from `none` to `icl` while a small model trains, and a page that
# draws the strength of its circuits over the steps.

# %%
import torch

from imir_detect import detect_circuits, make_task
from imir_detect.report.compare import compare
from imir_detect.training.tracking import CoordinateTracker
from imir_detect.weights.native import ModelSpec

task = make_task("recall", n_blocks=4, n_common=12, n_rare=12, rare_frequency=1.0)
model = ModelSpec(task.vocab_size, task.n_positions, n_heads=2, d_model=48).boot(seed=0)
optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
generator = torch.Generator().manual_seed(0)
tracker = CoordinateTracker(model, relation=task.relation, every=50)

reports = {}
for step in range(601):
    tracker(step)
    if step % 150 == 0:
        reports[f"step {step}"] = detect_circuits(model, relation=task.relation)
    batch = task.sample(64, generator=generator)
    logits = model(batch.tokens)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

# %%
course = compare(reports)
print(course.table.column("label"))
course

# %%
print("page written to", course.to_html("course.html"))
print({name: round(value, 1) for name, value in tracker.history[-1].items()})
