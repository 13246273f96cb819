"""Fresh initialisations of a pretrained model's own configuration get no circuit.

    python benchmarks/fresh_pretrained.py FOLDER_OR_GGUF [--seeds 1] [--layers N]

Builds the architecture of the given Hugging Face folder or GGUF file with random weights, detects,
and prints every circuit found and the highest predicted attention of each kind. `--layers` cuts the
depth, to try more seeds in the same time.
"""

from __future__ import annotations

import argparse
import copy
import time

import torch

from imir_detect import detect_circuits, open_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--layers", type=int)
    arguments = parser.parse_args()
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    original = open_model(arguments.model).original_model
    config = copy.deepcopy(original.config)
    if arguments.layers:
        config.num_hidden_layers = arguments.layers
    kind = type(original)
    del original
    wrong = 0
    for seed in range(arguments.seeds):
        torch.manual_seed(seed)
        model = build_bridge_from_module(
            kind(config).eval(), architecture=kind.__name__, hf_config=config
        )
        start = time.perf_counter()
        report = detect_circuits(model, seed=seed)
        answering = [c for c in report.circuits if c.strength > 0]
        wrong += bool(report.circuits)
        best = {k: max(report.heads.column(k)) for k in ("previous_token", "induction")}
        print(
            f"seed {seed}: {report.label}, {len(report.circuits)} circuits "
            f"{[(c.kind, round(c.strength, 2)) for c in answering]}, largest predicted attention "
            f"{best}, {time.perf_counter() - start:.0f} s",
            flush=True,
        )
    print(f"{wrong} of {arguments.seeds} fresh models got a circuit")


if __name__ == "__main__":
    main()
