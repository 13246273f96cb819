"""Fresh initialisations of every supported family get no circuit.

    python benchmarks/fresh_families.py [--seeds 20] [--seed 0] [--quick] [--out FILE.csv]

Tiny models (2 layers of 4 heads, 40 tokens) of all families that the support table reads, each as
its own library initialises it ("own") and with every weight, bias and gain random at a larger
scale ("wide"). A row a family and initialisation: models with a circuit of any kind, with one that
works, with a head that has a role, with a relation, and with a label other than "none"; and the
kinds seen. Rows already in the file are kept, so that a killed run goes on. Contexts have 12
positions, for time (`--context`). `--seed`: the first of the `--seeds`; a test that was mended with
some of them in sight is measured on others. `--quick`: two seeds.

`results/fresh_families.csv` is of `--seed 5000`. Of the seeds from 0, seen before the relation's
test was mended, one OLMo had an association.
"""

from __future__ import annotations

import argparse
import csv
import logging
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from imir_detect import detect_circuits
from imir_detect.weights.support import FAMILIES

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import families  # noqa: E402

COLUMNS = (
    "family",
    "start",
    "seed",
    "models",
    "circuit",
    "works",
    "role",
    "relation",
    "label",
    "kinds",
)
COUNTS = COLUMNS[4:9]
STARTS = ("own", "wide")


def fresh(family: str, start: str, seed: int) -> Any:
    """A bridge of a tiny fresh model."""
    return families.wrapped(family, seed=seed, scale=None if start == "own" else 0.6)


def row_of(family: str, start: str, seeds: range, context: int) -> dict[str, Any]:
    count: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
    kinds: Counter[str] = Counter()
    for seed in seeds:
        report = detect_circuits(fresh(family, start, seed), context=context, seed=seed)
        count["circuit"] += bool(report.circuits)
        count["works"] += any(c.works for c in report.circuits)
        count["role"] += any(role != "none" for role in report.heads.column("role"))
        count["relation"] += report.meta["relation"]["named"] > 0
        count["label"] += report.label != "none"
        kinds.update({c.kind for c in report.circuits})
    said = " ".join(f"{kind}:{n}" for kind, n in sorted(kinds.items()))
    models = {"family": family, "start": start, "seed": seeds.start, "models": len(seeds)}
    return {**models, **count, "kinds": said}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--context", type=int, default=12)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    count = 2 if arguments.quick else arguments.seeds
    seeds = range(arguments.seed, arguments.seed + count)
    rows: list[dict[str, Any]] = []
    if arguments.out is not None and arguments.out.exists():
        with arguments.out.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    known = {(row["family"], row["start"], int(row["seed"]), int(row["models"])) for row in rows}
    read = [f.name for f in FAMILIES if f.read and f.name in families.CONFIGS]
    for start in STARTS:
        for family in read:
            if (family, start, seeds.start, count) in known:
                continue
            rows.append(row_of(family, start, seeds, arguments.context))
            print(rows[-1], flush=True)
            if arguments.out is not None:
                with arguments.out.open("w", newline="", encoding="utf-8") as file:
                    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                    writer.writeheader()
                    writer.writerows(rows)
    for start in STARTS:
        own = [row for row in rows if row["start"] == start]
        said = ", ".join(f"{name} {sum(int(r[name]) for r in own)}" for name in COUNTS)
        print(
            f"{start}: {sum(int(r['models']) for r in own)} models of {len(own)} families: {said}"
        )


if __name__ == "__main__":
    main()
