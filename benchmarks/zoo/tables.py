"""Scores of a split beside baselines, each with its count and a 95 % interval.

    python benchmarks/zoo/tables.py --split fresh

Reads the lines that score.py and baselines.py wrote, and writes benchmarks/zoo/results/SPLIT.md and
SPLIT.json. `held-out.md` is the first sight of that split, by the detector of that time. Intervals
are Wilson's for shares, and the 2.5 and 97.5 percentiles of 500 bootstrap samples of models for the
rest. Baselines are logistic regressions (scikit-learn, standardised features) fitted on the models
that the verdict was fitted on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from calibrate import divide
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from imir_detect.circuits.verdict import LABELS, probabilities_of, shipped_fit
from imir_detect.zoo.roles import ROLES, roles_of

RESULTS = Path(__file__).parent / "results"
LOOKED_AT = ("training", "development", "held-out")
NEAR = 0.1  # by which a predicted accuracy may differ from the measured one
Row = dict[str, Any]


def read(name: str) -> list[Row]:
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]


# -- statistics ------------------------------------------------------------------------------------


def wilson(right: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share."""
    if count == 0:
        return 0.0, 1.0
    share, weight = right / count, z * z / count
    middle = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * np.sqrt(share * (1 - share) / count + weight / (4 * count))
    return float(max(0.0, middle - half)), float(min(1.0, middle + half))


def bootstrap(score: Callable[[Any], float], count: int, draws: int = 500) -> tuple[float, float]:
    """Percentile interval of `score(index)` over samples of models."""
    rng = np.random.default_rng(0)
    values = [score(rng.integers(count, size=count)) for _ in range(draws)]
    return tuple(float(v) for v in np.nanpercentile(values, [2.5, 97.5]))  # type: ignore[return-value]


def macro_auroc(chance: Any, label: Any) -> float:
    """Mean over the labels that occur of one-against-rest AUROC."""
    areas = []
    for place, name in enumerate(LABELS):
        own = label == name
        if own.any() and not own.all():
            areas.append(roc_auc_score(own, chance[:, place]))
    return float(np.mean(areas)) if areas else float("nan")


def calibration_error(chance: Any, label: Any, bins: int = 10) -> float:
    """ECE of the most probable label, in bins of equal mass."""
    top = chance.max(1)
    right = np.array(LABELS)[chance.argmax(1)] == label
    parts = np.array_split(np.argsort(top, kind="stable"), bins)
    gaps = [abs(top[p].mean() - right[p].mean()) * len(p) for p in parts if len(p)]
    return float(sum(gaps) / len(top))


def brier(chance: Any, label: Any) -> float:
    """Mean squared distance of the four probabilities from the truth, summed over labels."""
    truth = label[:, None] == np.array(LABELS)[None]
    return float(((chance - truth) ** 2).sum(1).mean())


# -- methods: four probabilities a model -----------------------------------------------------------


def ours(rows: list[Row], reading: str) -> Any:
    chances = [probabilities_of(row[reading]["features"]) for row in rows]
    return np.array([[chance[name] for name in LABELS] for chance in chances])


def baseline(kind: str, train: list[Row], test: list[Row]) -> Any:
    """Probabilities of a logistic regression on one kind of baseline feature."""
    train = [row for row in train if row["label"] in LABELS]
    y = np.array([row["label"] for row in train])
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
    model.fit([list(row[kind].values()) for row in train], y)
    found = model.predict_proba([list(row[kind].values()) for row in test])
    order = list(model.classes_)
    blank = np.zeros(len(test))
    return np.stack([found[:, order.index(n)] if n in order else blank for n in LABELS], 1)


def most_frequent(train: list[Row], count: int) -> Any:
    known = [row["label"] for row in train if row["label"] in LABELS]
    return np.tile([known.count(name) / len(known) for name in LABELS], (count, 1))


# -- tables ----------------------------------------------------------------------------------------


def label_table(rows: list[Row], split: str) -> list[Row]:
    """Accuracy, AUROC, ECE and Brier score of every method on the unambiguous models."""
    clear = [row for row in rows if row["label"] in LABELS]
    label = np.array([row["label"] for row in clear])
    names = [row["name"] for row in clear]
    fitted = {row["name"] for row in divide(read("looked-at"))[0]}
    looked_at = [row for name in LOOKED_AT for row in read(f"{name}_baselines")]
    train = [row for row in looked_at if row["name"] in fitted]
    by_name = {row["name"]: row for row in read(f"{split}_baselines")}
    test = [by_name[name] for name in names]
    methods = {
        "circuits, R given where the task has one": ours(clear, "given"),
        "circuits, nothing given": ours(clear, "estimated"),
        "attention on repeated tokens": baseline("attention", train, test),
        "composition scores": baseline("composition", train, test),
        "weight statistics": baseline("statistics", train, test),
        "most frequent label": most_frequent(train, len(test)),
    }
    table = []
    for name, chance in methods.items():
        right = int((np.array(LABELS)[chance.argmax(1)] == label).sum())
        row = {"method": name, "models": len(clear), "right": right}
        row |= _entry("accuracy", right / len(clear), wilson(right, len(clear)))
        for metric, score in (
            ("macro AUROC", macro_auroc),
            ("ECE", calibration_error),
            ("Brier", brier),
        ):
            ends = bootstrap(lambda i, s=score, c=chance: s(c[i], label[i]), len(clear))
            row |= _entry(metric, score(chance, label), ends)
        table.append(row)
    return table


def accuracy_table(rows: list[Row]) -> list[Row]:
    """Predicted against measured accuracy, for the models whose task has the axis."""
    table = []
    for axis in ("icl", "iwl"):
        fit = shipped_fit().accuracy[axis]
        for reading in ("given", "estimated"):
            for name, predict in (
                ("calibrated", fit),
                ("share answered, as it is", lambda f, a=axis: f[f"{a}_wins"]),
            ):
                pairs = [
                    (predict(row[reading]["features"]), row["measured"][f"{axis}_accuracy"])
                    for row in rows
                    if f"{axis}_accuracy" in row["measured"]
                ]
                near = sum(abs(p - m) <= NEAR for p, m in pairs)
                ends = wilson(near, len(pairs))
                table.append(
                    {"axis": axis, "R": reading, "prediction": name, "models": len(pairs)}
                    | _entry("within 0.1", near / max(1, len(pairs)), ends)
                )
    return table


def role_table(rows: list[Row]) -> list[Row]:
    """Precision, recall and F1 of every role over the heads whose role is not ambiguous."""
    table = []
    for role in ROLES:
        counts = np.zeros((len(rows), 3))
        left_out = 0
        for place, row in enumerate(rows):
            measured = roles_of(row["heads_measured"])
            for (_, truth), named in zip(measured.items(), row["given"]["roles"], strict=False):
                if truth[role] is None:
                    left_out += 1
                    continue
                hit = named == role
                counts[place] += (
                    hit and truth[role],
                    hit and not truth[role],
                    not hit and truth[role],
                )

        def f1(index: Any, counts: Any = counts) -> float:
            true, extra, missed = counts[index].sum(0)
            return 2 * true / max(1, 2 * true + extra + missed)

        true, extra, missed = (int(v) for v in counts.sum(0))
        table.append(
            {"role": role, "right": true, "extra": extra, "missed": missed, "ambiguous": left_out}
            | _entry("F1", f1(np.arange(len(rows))), bootstrap(f1, len(rows)))
        )
    return table


def _entry(name: str, value: float, ends: tuple[float, float]) -> Row:
    return {
        name: round(value, 4),
        f"{name} low": round(ends[0], 4),
        f"{name} high": round(ends[1], 4),
    }


def markdown(table: list[Row]) -> str:
    """A table whose metrics stand as "value (low, high)"."""
    names = [n for n in table[0] if not n.endswith((" low", " high"))]
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for row in table:
        cells = []
        for name in names:
            text = str(row[name])
            if f"{name} low" in row:
                text = f"{row[name]:.3f} ({row[f'{name} low']:.3f}, {row[f'{name} high']:.3f})"
            cells.append(text)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def misses(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        read_as = {
            r: max(LABELS, key=probabilities_of(row[r]["features"]).__getitem__)
            for r in ("given", "estimated")
        }
        wrong = [r for r, label in read_as.items() if label != row["label"]]
        if row["label"] in LABELS and wrong:
            said = ", ".join(f"{r}: {read_as[r]}" for r in wrong)
            lines.append(f"- {row['name']}: measured {row['label']} {row['measured']}; {said}")
    return "\n".join(lines) or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", default="fresh")
    parser.add_argument("--rows", help="the readings, where others than the split's newest")
    parser.add_argument("--without", help="earlier readings, whose models are left out")
    args = parser.parse_args()
    name = args.rows or args.split
    rows, command = read(name), f"--split {args.split}"
    if args.rows:
        command += f" --rows {name}"
    if args.without:
        known = {row["name"] for row in read(args.without)}
        rows = [row for row in rows if row["name"] not in known]
        name, command = f"{name}-without-{args.without}", f"{command} --without {args.without}"
    counts = {n: sum(r["label"] == n for r in rows) for n in (*LABELS, "ambiguous")}
    tables = {
        "Labels": label_table(rows, args.split),
        "Predicted and measured accuracy": accuracy_table(rows),
        "Roles of heads": role_table(rows),
    }
    text = (
        f"# The {args.split} split\n\nBy `python benchmarks/zoo/tables.py {command}`. "
        f"{len(rows)} models, by measured label: {counts}. 95 % intervals in brackets.\n"
    )
    for title, table in tables.items():
        text += f"\n## {title}\n\n{markdown(table)}\n"
    text += f"\n## Unambiguous models whose label was not read\n\n{misses(rows)}\n"
    (RESULTS / f"{name}.md").write_text(text)
    (RESULTS / f"{name}.json").write_text(json.dumps(tables, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
