"""The same saved model gives the same report on every generation of the library.

python tests/compat/reports.py write FOLDER    reports of the shipped models, with this library
python tests/compat/reports.py check FOLDER    compare with them, number by number, to 1e-5
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import math
import sys
import warnings
from pathlib import Path
from typing import Any

TOLERANCE = 1e-5
OWN = ("transformer_lens", "python", "torch", "model_hash")  # these may differ


def differences(a: Any, b: Any, where: str = "") -> list[str]:
    """Every place where two reports differ by more than the tolerance."""
    if isinstance(a, dict) and isinstance(b, dict) and set(a) == set(b):
        keys = [k for k in a if not (where == "/meta" and k in OWN)]
        return [d for k in keys for d in differences(a[k], b[k], f"{where}/{k}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return [d for i, (x, y) in pairs for d in differences(x, y, f"{where}/{i}")]
    if isinstance(a, float) and isinstance(b, float):
        same = math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        return [] if same else [f"{where}: {a} and {b}"]
    return [] if a == b else [f"{where}: {a!r} and {b!r}"]


def main() -> int:
    from imir_detect import detect_circuits, shipped_model
    from imir_detect.zoo import SHIPPED

    action, folder = sys.argv[1], Path(sys.argv[2])
    found = []
    for name in SHIPPED:
        report = detect_circuits(shipped_model(name))
        if action == "write":
            report.to_json(folder / f"{name}.json")
            continue
        own = folder / f"{name}-own.json"
        report.to_json(own)
        texts = [p.read_text(encoding="utf-8") for p in (folder / f"{name}.json", own)]
        found += differences(*(json.loads(text) for text in texts))
    for line in found:
        print(line)
    version = importlib.metadata.version("transformer-lens")
    print(f"{action}: {len(SHIPPED)} reports, transformer-lens {version}, {len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    sys.exit(main())
