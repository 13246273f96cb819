"""Time and memory of detection on models of pretrained size, beside one attention-pattern scan and
beside edge attribution patching.

    python benchmarks/pretrained_speed.py [--quick] [--eap] [--out FILE.csv]

Random weights of GPT-2's architecture (learned positions, MLPs), since time does not depend on what
they say. First GPT-2 small's shape (12 layers of 12 heads, d_model 768, 50,257 tokens), then depth
2 .. 32 at d_model 256 with 5,000 tokens. Each row: seconds of reading and detection, seconds of one
scan of attention on repeated tokens (8 rows of 128), their ratio, and the memory that detection
took beyond the model, in a process of its own. `--quick`: depths 2 and 4 only.

`--eap`: the same depths up to 16 without MLPs (the benchmark's edges lead between heads), and EAP
(Syed, Rager and Conmy 2023; `imir_detect.benchmark.attribution`) on the same model in the same
process: all edges scored on 8 prompts of 64 random tokens that repeat, resampled against 8 others,
two forward passes and one backward pass. Its seconds, and the ratio, are of processor time; they
leave out reading the weights, which detection's include.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import resource
import sys
import time
from pathlib import Path
from typing import Any

DEPTHS = (2, 4, 8, 16, 32)


def measure(
    layers: int, heads: int, width: int, vocabulary: int, mlps: bool
) -> dict[str, float | None]:
    """One model in this process: seconds and megabytes."""
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    from imir_detect import detect_circuits
    from imir_detect.behaviour import repeated_attention

    make = wrapped if mlps else attention_only
    model = make(layers, heads, width, vocabulary)
    repeated_attention(model, contexts=1, period=8)  # warm up
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, busy = time.perf_counter(), time.process_time()
    report = detect_circuits(model)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    repeated_attention(model)
    scan = time.perf_counter() - start
    eap = None if mlps else eap_seconds(model)
    return {
        "mlps": mlps,
        "layers": layers,
        "heads": heads,
        "d_model": width,
        "vocabulary": vocabulary,
        "detect_s": round(seconds, 2),
        "scan_s": round(scan, 2),
        "ratio": round(seconds / scan, 1),
        "eap_s": None if eap is None else round(eap, 2),
        "eap_ratio": None if eap is None else round(busy / eap, 2),
        "route": report.meta["route"],
        "extra_mb": round((peak - before) / 1024),
        "circuits": len(report.circuits),
    }


def wrapped(layers: int, heads: int, width: int, vocabulary: int) -> Any:
    """GPT-2's architecture with fresh weights, in a bridge."""
    import transformers
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    config = transformers.GPT2Config(
        vocab_size=vocabulary,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        n_positions=1024,
        attn_implementation="eager",
    )
    return build_bridge_from_module(
        transformers.GPT2LMHeadModel(config).eval(),
        architecture="GPT2LMHeadModel",
        hf_config=config,
    )


def attention_only(layers: int, heads: int, width: int, vocabulary: int) -> Any:
    """The same without MLPs, as a native model."""
    from imir_detect.weights.native import ModelSpec

    spec = ModelSpec(vocabulary, 1024, n_layers=layers, n_heads=heads, d_model=width, norm="LN")
    return spec.boot(seed=0)


def eap_seconds(model: Any, prompts: int = 8, length: int = 64) -> float:
    """Seconds of processor time that EAP takes to score every edge on repeated random tokens."""
    import torch

    from imir_detect.benchmark.attribution import edge_scores, residuals
    from imir_detect.benchmark.graph import PatchedModel
    from imir_detect.benchmark.prompts import Prompts
    from imir_detect.weights.read import read_weights

    weights = read_weights(model)
    generator = torch.Generator().manual_seed(0)
    period = torch.randint(weights.vocab_size, (2 * prompts, length // 2), generator=generator)
    tokens = torch.cat([period, period], 1)
    query = torch.full((prompts,), length - 2)
    clean, corrupt = tokens[:prompts], tokens[prompts:]
    asked = Prompts(clean, corrupt, query, clean[:, -1], corrupt[:, -1])
    start = time.process_time()
    patched = PatchedModel(weights, asked, "resample")
    change = patched.clean - patched.reference
    edge_scores(weights, residuals(patched.trace), change, asked, asked.logit_diff)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--eap", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    depths = DEPTHS[:2] if arguments.quick else DEPTHS
    if arguments.eap:
        shapes = [(depth, 8, 256, 5000, False) for depth in depths if depth <= 16]
    else:
        shapes = [(depth, 8, 256, 5000, True) for depth in depths]
        if not arguments.quick:
            shapes.insert(0, (12, 12, 768, 50257, True))
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
