"""Read again, with nothing given, the models of a split whose label was missed at first sight.

    python benchmarks/zoo/again.py --split held-out

These models were looked at after the first score; what this prints says which faults are mended and
is no score.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    import torch

    from imir_detect import detect_circuits
    from imir_detect.circuits.verdict import LABELS
    from imir_detect.weights.store import load_model

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", default="held-out")
    args = parser.parse_args()
    lines = (HERE / "results" / f"{args.split}.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    missed = [r for r in rows if r["label"] in LABELS and r["estimated"]["label"] != r["label"]]
    right = 0
    for row in missed:
        label = detect_circuits(load_model(HERE / "models" / row["name"])[0]).label
        right += label == row["label"]
        print(f"{row['name']}: measured {row['label']}, read now {label}", flush=True)
    print(f"{right} of {len(missed)} models missed at first sight are read as measured now")


if __name__ == "__main__":
    main()
