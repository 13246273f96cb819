"""Time and memory of detection on models of pretrained size, beside one attention-pattern scan and
beside edge attribution patching.

    python benchmarks/pretrained_speed.py [--quick] [--eap] [--out FILE.csv]
    python benchmarks/pretrained_speed.py --draw

Random weights of GPT-2's architecture (learned positions, MLPs), since time does not depend on what
they say. First GPT-2 small's shape (12 layers of 12 heads, d_model 768, 50,257 tokens), then depth
2 .. 32 at d_model 256 with 5,000 tokens. Each row, in a process of its own: seconds of reading and
detection, and of the processor alone; the same of one scan of attention on repeated tokens (8 rows
of 128, the fastest of three), and the ratio; the memory that detection took beyond the model. Since
such a model has no induction heads whose feeders would be searched, that search is measured apart:
processor seconds for one head of the last layer, fed by any head of any earlier layer through
queries, keys or values. `--quick`: depths 2 and 4 only.

`--eap`: the same depths up to 16 without MLPs (the benchmark's edges lead between heads), and EAP
(Syed, Rager and Conmy 2023; `imir_detect.benchmark.attribution`) on the same model in the same
process: all edges scored on 8 prompts of 64 random tokens that repeat, resampled against 8 others,
two forward passes and one backward pass. Its seconds, and the ratio, are of processor time; they
leave out reading the weights, which detection's include.

`--draw`: `results/pretrained_speed.md` and `docs/images/cost.svg` from the committed tables.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HOME = Path(__file__).parent
RESULTS, IMAGES = HOME / "results", HOME.parent / "docs" / "images"
DEPTHS = (2, 4, 8, 16, 32)
NOTE = (
    "By `python benchmarks/pretrained_speed.py`, and with `--eap`. `_cpu_s` is processor time, "
    "which other work on the machine hardly changes; seconds on the clock (`detect_s`, `scan_s`) "
    "say little where they are far above it divided by `threads`. `extra_mb`: beyond the model."
)


def measure(
    layers: int, heads: int, width: int, vocabulary: int, mlps: bool
) -> dict[str, float | None]:
    """One model in this process: seconds and megabytes."""
    import logging
    import warnings

    import torch

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
    scans = []
    for _ in range(3):
        start, alone = time.perf_counter(), time.process_time()
        repeated_attention(model)
        scans.append((time.perf_counter() - start, time.process_time() - alone))
    scan, scan_busy = min(scans)
    eap = None if mlps else eap_seconds(model)
    return {
        "mlps": mlps,
        "layers": layers,
        "heads": heads,
        "d_model": width,
        "vocabulary": vocabulary,
        "threads": torch.get_num_threads(),
        "pairs": heads**2 * layers * (layers - 1) // 2,
        "detect_s": round(seconds, 2),
        "detect_cpu_s": round(busy, 2),
        "scan_s": round(scan, 2),
        "scan_cpu_s": round(scan_busy, 2),
        "ratio": round(seconds / scan, 1),
        "cpu_ratio": round(busy / scan_busy, 1),
        "feeders_cpu_s": None if vocabulary > 10_000 else round(feeder_seconds(model), 4),
        "eap_s": None if eap is None else round(eap, 2),
        "eap_ratio": None if eap is None else round(busy / eap, 2),
        "route": report.meta["route"],
        "extra_mb": round((peak - before) / 1024),
        "circuits": len(report.circuits),
    }


def feeder_seconds(model: Any) -> float:
    """Seconds of processor time that the search for what feeds one head of the last layer takes."""
    import torch

    from imir_detect.circuits.deep_feeders import fed
    from imir_detect.circuits.deep_seen import Deep
    from imir_detect.coordinates.extended import Extended
    from imir_detect.weights.read import read_weights
    from imir_detect.weights.run import run_residuals

    weights = read_weights(model)

    def run(tokens: torch.Tensor) -> list[torch.Tensor]:
        return run_residuals(model, weights, tokens)

    extended = Extended.take(weights, run, torch.arange(weights.vocab_size), 64, seed=0)
    deep = Deep.take(weights, extended, run, seed=0)
    start = time.process_time()
    fed(deep, ((weights.n_layers - 1, 0),))
    return time.process_time() - start


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


# -- tables and figure ----------------------------------------------------------------------------


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of the least-squares line through log y over log x: 1 is linear, 2 is quadratic."""
    logs = [(math.log(a), math.log(b)) for a, b in zip(x, y, strict=True)]
    mean_x, mean_y = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    return sum((a - mean_x) * (b - mean_y) for a, b in logs) / sum(
        (a - mean_x) ** 2 for a, _ in logs
    )


def read(name: str) -> list[dict[str, Any]]:
    """A committed table; numbers as such."""
    with (RESULTS / name).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def value(text: str) -> Any:
        return int(text) if text.isdigit() else float(text) if text[:1].isdigit() else text

    return [{k: value(v) for k, v in row.items()} for row in rows]


def draw() -> None:
    """The page of the committed tables, and the figure of cost over heads."""
    sys.path.insert(0, str(HOME / "paper"))
    from _table import figure, show

    tables = {name: read(f"{name}.csv") for name in ("pretrained_speed", "pretrained_speed_eap")}
    rows = [row for row in tables["pretrained_speed"] if row["vocabulary"] == 5000]
    heads = [row["layers"] * row["heads"] for row in rows]
    lines = {
        "reading and detection": [row["detect_cpu_s"] for row in rows],
        "feeders of one head": [row["feeders_cpu_s"] for row in rows],
    }
    text = ["# Cost of detection", "", NOTE, ""]
    for table in tables.values():
        columns = [c for c in table[0] if any(row[c] not in ("", "None") for row in table)]
        text += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        text += ["| " + " | ".join(show(row[c]) for c in columns) + " |" for row in table]
        text.append("")
    pairs = [row["pairs"] for row in rows]
    text += [
        f"Slopes in logarithms over {heads[0]} to {heads[-1]} heads (1 is linear, 2 would be every "
        "pair): "
        + "; ".join(f"{name} {slope(heads, values):.2f}" for name, values in lines.items())
        + f". Over pairs of heads: detection {slope(pairs, lines['reading and detection']):.2f}.",
        "",
    ]
    (RESULTS / "pretrained_speed.md").write_text("\n".join(text), encoding="utf-8")

    def plot(axes: Any) -> None:
        for (name, values), mark in zip(lines.items(), "os", strict=True):
            axes.loglog(heads, values, f"{mark}-", label=f"{name} ({slope(heads, values):.2f})")
            for power, style in ((1, ":"), (2, "--")):
                guide = [values[0] * (n / heads[0]) ** power for n in heads]
                axes.loglog(heads, guide, style, color="0.6", zorder=0)
        axes.plot([], [], ":", color="0.6", label="linear in heads (1)")
        axes.plot([], [], "--", color="0.6", label="every pair (2)")
        axes.set_xticks(heads, [str(n) for n in heads])
        axes.minorticks_off()
        axes.set_xlabel("heads (2 to 32 layers of 8)")
        axes.set_ylabel("processor seconds")
        axes.legend(title="slope in brackets", frameon=False)

    figure(IMAGES, "cost", plot)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--eap", action="store_true")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.draw:
        draw()
        return
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
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
