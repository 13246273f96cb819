"""Theorem 3: gradients against burstiness, where it holds and where it saturates.

python benchmarks/paper/burstiness.py [--quick]
"""

from __future__ import annotations

from _table import Clock, figure, options, save

from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory.burstiness import burstiness

SMALL, DEVELOPED = (0.1, 0.1, 0.1), (3.0, 4.0, 2.0)
SETTINGS = [
    ("n 64, V 384", 64, 384, SMALL, (1, 2, 4, 8)),
    ("n 64, V 1152", 64, 1152, SMALL, (1, 2, 4, 8)),
    ("n 32, V 384", 32, 384, SMALL, (1, 2, 4, 8)),
    ("n 64, V 384, b up to n", 64, 384, SMALL, (1, 2, 4, 8, 16, 32)),
    ("n 64, V 384, developed (3, 4, 2)", 64, 384, DEVELOPED, (1, 2, 4, 8)),
    ("n 32, V 384, developed (3, 4, 2)", 32, 384, DEVELOPED, (1, 2, 4, 8)),
]


def main() -> None:
    chosen, clock = options(__doc__), Clock()
    rows = []
    for name, n, vocab, point, values in SETTINGS:
        task = AssociativeRecall(n_blocks=n, n_common=0, n_rare=vocab, rare_frequency=1.0)
        size = 2048 if chosen.quick else 16384
        found = burstiness(task, values=values, point=point, n=size, seed=chosen.seed)
        rows += [{"setting": name, **row} for row in found]
    note = (
        "g(b) / g(1), lexinvariant recall: gamma at the origin, alpha and beta at (.1, .1, .1) or "
        "at a developed circuit. slope: of log g on log b over the listed b.\n"
        "Wanted: gamma within 1 % of (bV - T)/(V - T); at n = 64 slopes of alpha and beta in "
        "[.9, 1.0]. Proportionality ends where b nears n and on a developed circuit."
    )
    save(rows, chosen.out, "burstiness", note)

    def draw(axes):
        for name, *_ in SETTINGS:
            own = [r for r in rows if r["setting"] == name and r["coordinate"] == "beta"]
            axes.loglog(
                [r["burstiness"] for r in own], [r["measured"] for r in own], marker="o", label=name
            )
        axes.loglog([1, 32], [1, 32], c="k", lw=0.7)
        axes.set(xlabel="burstiness b", ylabel="beta's gradient, b against 1")
        axes.legend(fontsize=7)

    figure(chosen.out, "burstiness", draw)
    print(f"{clock():.0f} s")


if __name__ == "__main__":
    main()
