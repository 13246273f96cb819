# %% [markdown]
# # Circuits of a model in five lines
# You will see the label `icl`, an induction circuit with its heads and edges, and the heads' roles;
# `report.html` is the same as a page.

# %%
from imir_detect import detect_circuits, shipped_model

model = shipped_model("icl")  # or a TransformerLens model of yours
report = detect_circuits(model)
report

# %%
circuit = report.circuits[0]
print(circuit.kind, "works" if circuit.works else "does not work")
for edge in circuit.edges:
    if edge.source != "embed":
        print("  ", edge)

# %%
print(report.heads.column("role"))

# %%
print("page written to", report.to_html("report.html", name="the shipped model icl"))
