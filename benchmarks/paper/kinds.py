"""Which kind of circuit wins when several would do: ICL or IWL; match or double anti-match.

python benchmarks/paper/kinds.py [--quick] [--resume]
"""

from __future__ import annotations

from collections import Counter

from _table import Clock, options, save, saved

from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory.competition import Course, outcome_row
from imir_detect.theory.kinds import kind_of, race_kinds

TWO_HOP = (
    "2-hop induction, n = 6, all coordinates of a 3-layer model trained by descent with steps of "
    "one length, from N(0, .3^2) plus `canonical` on the canonical four. predicted: share of the "
    "learned runs whose kind the signs of the two matches at the start name; by the sum: the same "
    "with 'match' where the two together are positive, else 'double anti-match'."
)
RECALL = (
    "Recall where either circuit answers everything (f_r = f_v = 0, answer always shown), n = 4, "
    "V = 32, 800 descent steps from alpha = beta = gamma = start, delta = 0. Descent leaves ICL "
    "for IWL: from a start with a working ICL circuit its accuracy falls again (icl lost: best "
    "minus final), in the four coordinates as in the model trained in all weights: transience."
)


def two_hop(chosen, clock):
    rows = saved(chosen, "kinds_two_hop")
    strengths = (0.0, 2.0) if chosen.quick else (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)
    for canonical in strengths[len(rows) :]:
        seeds = range(chosen.seed, chosen.seed + (2 if chosen.quick else 10))
        races = [race_kinds(canonical=canonical, seed=seed) for seed in seeds]
        kinds = Counter(race.kind for race in races)
        done = [race for race in races if race.kind != "not learned"]
        signs = sum(kind_of(*race.start[1:3]) == race.kind for race in done)
        sums = sum(
            race.kind == ("match" if race.start[1] + race.start[2] > 0 else "double anti-match")
            for race in done
        )
        row = {"canonical": canonical, "runs": len(races)}
        row |= {k: kinds[k] for k in ("match", "double anti-match", "mixed", "not learned")}
        row |= {"predicted": signs / max(1, len(done)), "by the sum": sums / max(1, len(done))}
        rows.append(row)
        print(row, f"{clock():.0f} s", flush=True)
        save(rows, chosen.out, "kinds_two_hop", TWO_HOP)


def recall(chosen, clock):
    rows = saved(chosen, "kinds_recall")
    task = AssociativeRecall(
        n_blocks=4, n_common=16, n_rare=16, rare_frequency=0.0, query_never_first=True
    )
    starts = (0.1, 3.0) if chosen.quick else (0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
    for start in starts[len(rows) :]:
        course = Course(start=(start, start, start, 0.0), seed=chosen.seed)
        row = outcome_row(task, course)
        for knob in ("f_r", "f_v", "b", "present"):
            del row[knob]
        rows.append({"start": start, **row})
        print(rows[-1], f"{clock():.0f} s", flush=True)
        save(rows, chosen.out, "kinds_recall", RECALL)


def main() -> None:
    chosen, clock = options(__doc__), Clock()
    recall(chosen, clock)
    two_hop(chosen, clock)


if __name__ == "__main__":
    main()
