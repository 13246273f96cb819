# %% [markdown]
# # Does the circuit matter?
# You will see accuracy on fresh associations before, inside and after a block in which the
# circuit's heads give their mean over the batch: it falls to nothing, and comes back.

# %%
import torch

from imir_detect import detect_circuits, make_task, shipped_model

model = shipped_model("icl")
circuit = detect_circuits(model).circuits[0]
task = make_task("recall", rare_frequency=1.0)
batch = task.sample(256, generator=torch.Generator().manual_seed(0))


def accuracy() -> float:
    with torch.no_grad():
        answers = model(batch.tokens)[:, -1].argmax(-1)
    return float((answers == batch.targets[:, -1]).double().mean())


# %%
before = accuracy()
with circuit.ablate(model):
    inside = accuracy()
after = accuracy()
print(f"before {before:.2f}, ablated {inside:.2f}, after {after:.2f}")

# %% [markdown]
# The same hooks by themselves, for `run_with_hooks`; and the attention of the circuit's heads on
# one sequence, as circuitsvis wants it: `attention_heads(attention=patterns, tokens=words,
# attention_head_names=list(circuit.names))`.

# %%
logits = model.run_with_hooks(batch.tokens, fwd_hooks=circuit.hooks())
patterns = circuit.patterns(model, batch.tokens[0])  # (head, query, key)
print(circuit.names, tuple(patterns.shape))
