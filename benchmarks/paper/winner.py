"""Which head wins, told from the coordinates at initialisation.

python benchmarks/paper/winner.py [--quick] [--resume]
"""

from __future__ import annotations

from functools import partial
from itertools import product
from statistics import mean

from _table import Clock, options, save, saved

from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory.winner import hit_rates, race_coordinates, race_weights

SCALE, NOISE = 0.5, 0.1
NOTE = (
    "Share of runs in which the head named at initialisation contributes most to the answer's "
    "attention score at the end; lexinvariant recall, n = 4, V = 16. init: standard deviation of "
    "alpha and beta (coordinates drawn) or of every weight (all weights, where alpha and beta come "
    "out at .14 and .13). noise: standard deviation of every weight beside them. Weights: "
    "|M| alpha + |I| beta, ring positions. lead: the winner's share of the positive contributions "
    "(1/H: heads share the job); clear: lead above 1.2/H.\nWanted for alpha + beta: at least .95 "
    "(coordinates), .80 (all weights)."
)


def main() -> None:
    chosen, clock = options(__doc__), Clock()
    task = AssociativeRecall(
        n_blocks=4, n_common=0, n_rare=16, rare_frequency=1.0, query_never_first=True
    )
    runs = 8 if chosen.quick else 30
    rows = saved(chosen, "winner")
    done_before = {(r["model"], r["heads"]) for r in rows}
    settings = (
        ("coordinates", race_coordinates, None),
        ("all weights, coordinates drawn", partial(race_weights, noise=NOISE), NOISE),
        ("all weights", race_weights, SCALE),
    )
    for (name, race, noise), heads in product(settings, (2, 4)):
        if (name, heads) in done_before:
            continue
        seeds = range(chosen.seed, chosen.seed + runs)
        races = [race(task, heads=heads, scale=SCALE, seed=s) for s in seeds]
        done = [r for r in races if r.emerged]
        clear = [r for r in done if r.lead > 1.2 / heads]
        row = {"model": name, "heads": heads, "init": SCALE, "noise": noise, "runs": runs}
        row |= {"emerged": len(done), **hit_rates(races), "chance": 1 / heads}
        row |= {"mean lead": mean(r.lead for r in done), "clear winners": len(clear)}
        row["alpha + beta, clear"] = hit_rates(clear)["alpha + beta"] if clear else None
        rows.append(row)
        print(row, f"{clock():.0f} s", flush=True)
        save(rows, chosen.out, "winner", NOTE)


if __name__ == "__main__":
    main()
