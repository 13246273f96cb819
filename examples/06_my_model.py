# %% [markdown]
# # Train a small model, then read it
# You will see a two-layer model learn in-context recall in some 400 steps, and then what its
# weights say: that it answers from the context, and by which heads.

# %%
from imir_detect import detect_circuits, make_task
from imir_detect.training.loop import Recipe, evaluate, train
from imir_detect.weights.native import ModelSpec

task = make_task("recall", n_blocks=4, n_common=12, n_rare=12, rare_frequency=1.0)
spec = ModelSpec(task.vocab_size, task.n_positions, n_heads=2, d_model=48)
recipe = Recipe(steps=900, batch=64, evaluate_every=100, stop_at={"icl_accuracy": 0.99}, seed=0)
run = train(task, spec, recipe)
print("steps:", int(run.history[-1]["step"]), "reached:", run.reached)

# %%
report = detect_circuits(run.model, task=task)
report

# %% [markdown]
# The prediction came from the weights. The task was given, so the model was run on it as well, and
# what it did stands beside the prediction.

# %%
print(report.label, {name: round(value, 2) for name, value in report.measured.items()})
print({name: round(value, 2) for name, value in evaluate(run.model, task, n=512).items()})
