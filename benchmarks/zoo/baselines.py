"""Baseline features of every zoo model: what simpler readings than whole circuits have to go on.

    python benchmarks/zoo/baselines.py --split training --models benchmarks/zoo/models

- `attention`: the largest mean attention of any head to the previous token, the earlier copy, and
  the token after it, on repeated random tokens (the model is run).
- `composition`: the largest Q-, K- and V-composition score of any pair of heads in different layers
  (Elhage et al. 2021: |A B| / (|A| |B|), Frobenius norms).
- `statistics`: mean, spread, kurtosis and largest size of the entries of each kind of weight, over
  layers; depth, heads and width.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
MODELS = Path(__file__).parent / "models"


def attention_scores(bridge: Any) -> dict[str, float]:
    from imir_detect.frame.contexts import repeated_contexts
    from imir_detect.zoo.roles import attention_patterns

    length = bridge.cfg.n_ctx
    tokens, period = repeated_contexts(
        128, length, torch.arange(bridge.cfg.d_vocab), generator=torch.Generator().manual_seed(0)
    )
    query = torch.arange(period + 1, tokens.shape[1])
    best = dict.fromkeys(("previous", "duplicate", "induction"), 0.0)
    for pattern in attention_patterns(bridge, tokens):
        for own in pattern.mean(0):
            for name, key in zip(
                best, (query - 1, query - period, query - period + 1), strict=True
            ):
                best[name] = max(best[name], float(own[query, key].mean()))
    return best


def composition_scores(weights: Any) -> dict[str, float]:
    best = dict.fromkeys("QKV", 0.0)
    for late in range(1, weights.n_layers):
        for head in range(weights.n_heads):
            read = {
                "Q": weights.W_QK(late, head),
                "K": weights.W_QK(late, head).T,
                "V": weights.W_OV(late, head),
            }
            for early in range(late):
                for other in range(weights.n_heads):
                    wrote = weights.W_OV(early, other)
                    for port, matrix in read.items():
                        norms = float(wrote.norm() * matrix.norm())
                        score = float((wrote @ matrix).norm()) / norms if norms > 0 else 0.0
                        best[port] = max(best[port], score)
    return best


def weight_statistics(weights: Any) -> dict[str, float]:
    found = {"layers": weights.n_layers, "heads": weights.n_heads, "width": weights.d_model}
    for name in ("W_E", "W_Q", "W_K", "W_V", "W_O", "W_U", "b_Q", "b_K", "b_O"):
        values = getattr(weights, name).flatten()
        spread = float(values.std())
        centred = values - values.mean()
        found[f"{name} mean"] = float(values.mean())
        found[f"{name} spread"] = spread
        found[f"{name} largest"] = float(values.abs().max())
        found[f"{name} kurtosis"] = float(centred.pow(4).mean()) / spread**4 if spread > 0 else 0.0
    return found


def main() -> None:
    from imir_detect.weights.read import read_weights
    from imir_detect.weights.store import load_model

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", required=True)
    parser.add_argument("--models", type=Path, default=MODELS)
    parser.add_argument("--target", type=Path)
    args = parser.parse_args()
    target = args.target or RESULTS / f"{args.split}_baselines.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w") as stream:
        for file in sorted(args.models.glob("*/card.json")):
            if json.loads(file.read_text())["split"] != args.split:
                continue
            bridge, card = load_model(file.parent)
            bridge.eval()
            weights = read_weights(bridge)
            row = {
                "name": card["name"],
                "label": card["label"],
                "attention": attention_scores(bridge),
                "composition": composition_scores(weights),
                "statistics": weight_statistics(weights),
            }
            stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
