# %% [markdown]
# # Figures for a notebook and for a paper
# You will see the same table drawn twice: by plotly, with numbers under the pointer, and by
# matplotlib, as an SVG. And the table itself, to draw it your own way.

# %%
from imir_detect import detect_circuits, shipped_model
from imir_detect.report.figures import figure, figure_table

report = detect_circuits(shipped_model("mixed"))
figure("graph", report, backend="matplotlib")

# %%
figure("roles", report, backend="matplotlib").savefig("roles.svg")
interactive = figure("roles", report)  # a plotly figure; `interactive.show()` opens it
print(type(interactive).__module__.split(".")[0], len(interactive.data))

# %%
table = figure_table("roles", report)
print(table[:3])
table.to_pandas().pivot(index="node", columns="measure", values="value").round(2)
