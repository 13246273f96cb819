"""What the committed leaderboard says of each promise, line by line.

    python benchmarks/leaderboard/check.py

Reads results/cases.csv and controls.csv; runs nothing. A line that is not met says so.
"""

from __future__ import annotations

import csv
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
RIVALS = ("acdc", "eap", "eap-corrupt", "eap-ig-inputs", "eap-ig-activations")
Rows = list[dict[str, str]]


def read(name: str) -> Rows:
    with (RESULTS / name).open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def areas(rows: Rows, method: str, **facts: str) -> list[float]:
    """AUC of a method on the cases with these facts."""
    return [
        float(row["auc"])
        for row in rows
        if row["method"] == method
        and row["auc"]
        and all(row[key] == value for key, value in facts.items())
    ]


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def say(met: bool, text: str) -> None:
    print(f"{'met    ' if met else 'NOT MET'}  {text}")


def main() -> None:
    rows = read("cases.csv")
    for row in rows:
        _, row["ablation"], row["granularity"] = row["case"].split("/")
    cases, methods = ({row[key] for row in rows} for key in ("case", "method"))
    scored = {row["case"] for row in rows if row["auc"]}
    say(
        len(scored) >= 60 and len(methods) >= 10 and len(rows) == len(cases) * len(methods),
        f"{len(cases)} cases ({len(scored)} with ranks), {len(methods)} methods, "
        f"{len(rows)} rows of {len(cases) * len(methods)}, "
        f"{sum(row['status'] == 'failed' for row in rows)} failed",
    )
    truth, chance = areas(rows, "truth"), areas(rows, "random")
    say(min(truth) == 1.0, f"truth: AUC {min(truth)} at least, on {len(truth)} cases")
    say(abs(mean(chance) - 0.5) <= 0.03, f"random: mean AUC {mean(chance):.4f}, 1,000 draws a case")
    far = max(abs(value - 0.5) for value in chance)
    say(far <= 0.03, f"random: no case further than {far:.3f} from 0.5")
    for source, least in (("planted", 0.9995), ("trained", 0.95)):
        ours = areas(rows, "imir", source=source, granularity="edge")
        bar = "1.00" if source == "planted" else "0.95"
        say(
            mean(ours) >= least,
            f"imir, edges, {source}: {mean(ours):.4f} of {bar}, {len(ours)} cases",
        )
        for ablation in ("zero", "mean", "resample"):
            facts = {"source": source, "granularity": "edge", "ablation": ablation}
            mine = mean(areas(rows, "imir", **facts))
            others = {name: mean(areas(rows, name, **facts)) for name in RIVALS}
            text = ", ".join(f"{name} {value:.3f}" for name, value in others.items())
            level = [name for name, value in others.items() if value == mine]
            say(
                all(value < mine for value in others.values()),
                f"  {ablation}: imir {mine:.4f} against {text}"
                + (f" (level with {', '.join(level)})" if level else ""),
            )
    for granularity in ("head", "unit"):
        ours = areas(rows, "imir", granularity=granularity)
        print(f"         imir, {granularity}s: {mean(ours):.4f}, {len(ours)} cases")
    for row in read("controls.csv"):
        if row["method"] == "imir":
            print(
                f"         imir, controls ({row['kind']}): detection {row['detection']}, "
                f"false share {row['false_share']}"
            )


if __name__ == "__main__":
    main()
