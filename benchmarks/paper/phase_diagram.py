"""Which circuit wins over f_r x f_v x burstiness: four coordinates against trained models.

python benchmarks/paper/phase_diagram.py [--quick]
"""

from __future__ import annotations

from itertools import product

from _table import Clock, figure, options, save

from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory.competition import Course, predicted_outcome, trained_outcome

LABELS = ("none", "icl", "iwl", "both")


def main() -> None:
    chosen, clock = options(__doc__), Clock()
    rare, fresh, bursts = (0.0, 0.1, 0.3, 0.6), (0.0, 0.2, 0.5), (1, 2)
    if chosen.quick:
        rare, fresh, bursts = (0.0, 0.6), (0.0, 0.5), (1,)
    rows = []
    for b, f_v, f_r in product(bursts, fresh, rare):
        task = AssociativeRecall(
            n_blocks=4,
            n_common=16,
            n_rare=16,
            rare_frequency=f_r,
            variability=f_v,
            burstiness=b,
            query_never_first=True,
        )
        course = Course(seed=chosen.seed)
        guess, truth = predicted_outcome(task, course), trained_outcome(task, course)
        border = guess.on_border or truth.on_border
        rows.append(
            {
                "f_r": f_r,
                "f_v": f_v,
                "b": b,
                "predicted": guess.label,
                "trained": truth.label,
                "agree": guess.label == truth.label,
                "on border": border,
                "predicted icl": guess.icl,
                "predicted iwl": guess.iwl,
                "trained icl": truth.icl,
                "trained iwl": truth.iwl,
                "icl lost, predicted": guess.transience,
                "icl lost, trained": truth.transience,
            }
        )
        print(rows[-1], f"{clock():.0f} s", flush=True)
        clear = [r for r in rows if not r["on border"]]
        share = sum(r["agree"] for r in clear) / len(clear) if clear else float("nan")
        note = (
            f"n = 4, V = 32, {course.steps} descent steps from (.1, .1, .1, 0). Off the border "
            f"{sum(r['agree'] for r in clear)} of {len(clear)} cells agree ({share:.2f}; wanted: "
            ".9); on the border: a final accuracy within .2 of 1/2 in either.\nicl lost: best ICL "
            "accuracy of the run minus the final one (transience)."
        )
        save(rows, chosen.out, "phase_diagram", note)

    def draw(axes):
        for column, key in enumerate(("predicted", "trained")):
            for row, b in enumerate(bursts):
                ax = axes[row][column]
                grid = [
                    [
                        next(
                            LABELS.index(r[key])
                            for r in rows
                            if (r["f_r"], r["f_v"], r["b"]) == (f_r, f_v, b)
                        )
                        for f_r in rare
                    ]
                    for f_v in fresh
                ]
                ax.imshow(grid, vmin=0, vmax=3, cmap="viridis", origin="lower", aspect="auto")
                for y, line in enumerate(grid):
                    for x, value in enumerate(line):
                        ax.text(x, y, LABELS[value], ha="center", va="center", color="w")
                ax.set(title=f"{key}, b = {b}", xlabel="f_r", ylabel="f_v")
                ax.set_xticks(range(len(rare)), rare)
                ax.set_yticks(range(len(fresh)), fresh)

    figure(chosen.out, "phase_diagram", draw, nrows=len(bursts), ncols=2, squeeze=False)


if __name__ == "__main__":
    main()
