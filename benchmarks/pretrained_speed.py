"""Time and memory of detection on models of pretrained size, beside one attention-pattern scan.

    python benchmarks/pretrained_speed.py [--quick] [--out FILE.csv]

Random weights of GPT-2's architecture (learned positions, MLPs), since time does not depend on what
they say. First GPT-2 small's shape (12 layers of 12 heads, d_model 768, 50,257 tokens), then depth
2 .. 32 at d_model 256 with 5,000 tokens. Each row: seconds of reading and detection, seconds of one
scan of attention on repeated tokens (8 rows of 128), their ratio, and the memory that detection
took beyond the model, in a process of its own. `--quick`: depths 2 and 4 only.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import resource
import sys
import time
from pathlib import Path

DEPTHS = (2, 4, 8, 16, 32)


def measure(layers: int, heads: int, width: int, vocabulary: int) -> dict[str, float]:
    """One model in this process: seconds and megabytes."""
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import transformers
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    from imir_detect import detect_circuits
    from imir_detect.behaviour import repeated_attention

    config = transformers.GPT2Config(
        vocab_size=vocabulary,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        n_positions=1024,
        attn_implementation="eager",
    )
    model = build_bridge_from_module(
        transformers.GPT2LMHeadModel(config).eval(),
        architecture="GPT2LMHeadModel",
        hf_config=config,
    )
    repeated_attention(model, contexts=1, period=8)  # warm up
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    report = detect_circuits(model)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    repeated_attention(model)
    scan = time.perf_counter() - start
    return {
        "layers": layers,
        "heads": heads,
        "d_model": width,
        "vocabulary": vocabulary,
        "detect_s": round(seconds, 2),
        "scan_s": round(scan, 2),
        "ratio": round(seconds / scan, 1),
        "extra_mb": round((peak - before) / 1024),
        "circuits": len(report.circuits),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    shapes = [(depth, 8, 256, 5000) for depth in (DEPTHS[:2] if arguments.quick else DEPTHS)]
    if not arguments.quick:
        shapes.insert(0, (12, 12, 768, 50257))
    rows = []
    context = multiprocessing.get_context("spawn")
    for shape in shapes:
        with context.Pool(1) as pool:
            rows.append(pool.apply(measure, shape))
        print(rows[-1], flush=True)
    if arguments.out is not None:
        with arguments.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
