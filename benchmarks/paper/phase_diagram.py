"""Which circuit wins over f_r x f_v x burstiness: four coordinates against trained models.

python benchmarks/paper/phase_diagram.py [--quick] [--resume]

Twice: where the answer is shown in half of the sequences that R answers too, and where it always
is, so that nothing asks for the answer from weights beside a working ICL circuit.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import product

from _table import Clock, options, save, saved

from imir_detect import figure
from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory.competition import Course, outcome_row

KNOBS = {"n_blocks": 4, "n_common": 16, "n_rare": 16, "query_never_first": True}
ONCE = product((1,), (0.0, 0.05, 0.2, 0.5, 1.0), (0.0, 0.03, 0.1, 0.3, 0.6))
TWICE = product((2,), (0.0, 0.2, 0.5), (0.0, 0.1, 0.6))
ALWAYS = product((1,), (0.0, 0.2, 0.5), (0.0, 0.1, 0.3, 0.6))


def grid(quick):
    """(b, f_v, f_r); where all blocks are rare, f_v says nothing and stands once."""
    if quick:
        return list(product((1,), (0.0, 0.5), (0.0, 0.6)))
    return [*ONCE, (1, 0.0, 1.0), *TWICE]


def note(rows, present, course):
    clear = [r for r in rows if not r["on border"]]
    agree = sum(r["agree"] for r in clear)
    kinds = Counter(r["trained"] for r in clear)
    most = max(kinds.values()) / len(clear) if clear else float("nan")
    lost = max(r["icl lost, trained"] for r in rows)
    return (
        f"n = 4, V = 32, answers shown to R's queries with probability {present}; "
        f"{course.steps} descent steps from (.1, .1, .1, 0), the four coordinates "
        f"{course.stretch} times as many; blocks anywhere on a ring. Off the border {agree} of "
        f"{len(clear)} cells agree ({agree / max(1, len(clear)):.2f}; wanted: .9; the commonest "
        f"outcome alone would get {most:.2f}: {dict(kinds)}); on the border: a final accuracy "
        "within .2 of 1/2 in either.\nlost: best accuracy of the run minus the final one "
        f"(transience). ICL: at most {lost:.3f} in trained models."
    )


def study(chosen, clock, name, cells, present):
    rows = saved(chosen, name)
    done_before = {(r["b"], r["f_v"], r["f_r"]) for r in rows}
    course = Course(seed=chosen.seed, probe=256)
    for b, f_v, f_r in cells:
        if (b, f_v, f_r) in done_before:
            continue
        shares = {"rare_frequency": f_r, "variability": f_v, "present": present}
        rows.append(outcome_row(AssociativeRecall(burstiness=b, **shares, **KNOBS), course))
        print(rows[-1], f"{clock():.0f} s", flush=True)
        save(rows, chosen.out, name, note(rows, present, course))
    return rows


def main() -> None:
    chosen, clock = options(__doc__), Clock()
    rows = study(chosen, clock, "phase_diagram", grid(chosen.quick), 0.5)
    if not chosen.quick:
        study(chosen, clock, "phase_diagram_always", list(ALWAYS), 1.0)
    os.environ.setdefault("MPLBACKEND", "Agg")
    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = "phase_diagram"
    drawn = figure("phase", rows, backend="matplotlib")
    drawn.savefig(chosen.out / "phase_diagram.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
