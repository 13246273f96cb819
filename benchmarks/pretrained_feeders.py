"""Do the named feeders feed? Ablate them, and look at the induction heads' attention.

    python benchmarks/pretrained_feeders.py MODEL [--draws 10] [--out FILE.json]

MODEL is anything that `imir-detect detect` takes. The heads that the induction circuit names as
feeders are mean-ablated on repeated random tokens, and the attention of its induction heads to the
token after the earlier copy is measured; beside it, the same for as many random other heads of the
layers before (mean and 95 % interval of the draws).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from imir_detect import detect_circuits, open_model
from imir_detect.weights.ablation import mean_ablation_hooks
from imir_detect.weights.run import quietly

PERIOD, CONTEXTS = 32, 8


def attention(model: Any, tokens: torch.Tensor, ends: list, ablated: list) -> float:
    """Mean attention of the heads `ends` to the token after the earlier copy."""
    seen: dict[int, torch.Tensor] = {}

    def keep(pattern: torch.Tensor, hook: Any) -> torch.Tensor:
        seen[int(hook.name.split(".")[1])] = pattern.detach().double().cpu()
        return pattern

    hooks: list = [(f"blocks.{layer}.attn.hook_pattern", keep) for layer in {x for x, _ in ends}]
    hooks += mean_ablation_hooks(ablated, model.cfg.n_heads)
    with quietly(model) as device:
        model.run_with_hooks(tokens.to(device), fwd_hooks=hooks)
    query = torch.arange(PERIOD + 1, 2 * PERIOD)
    values = [seen[a][:, h][:, query, query - PERIOD + 1].mean() for a, h in ends]
    return float(torch.stack(values).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    model = open_model(arguments.model)
    report = detect_circuits(model, seed=arguments.seed)
    circuit = next(c for c in report.circuits if c.kind == "induction")
    ends = [
        h for h in circuit.heads if any(e.source == h and e.port == "out" for e in circuit.edges)
    ]
    feeders = sorted(
        {e.source for e in circuit.edges if e.port == "K" and not isinstance(e.source, str)}
    )
    generator = torch.Generator().manual_seed(arguments.seed + 1)
    tokens = torch.randint(model.cfg.d_vocab, (CONTEXTS, PERIOD), generator=generator)
    tokens = torch.cat([tokens, tokens], 1)
    last = max(layer for layer, _ in ends)
    others = [
        (layer, head)
        for layer in range(last)
        for head in range(model.cfg.n_heads)
        if (layer, head) not in feeders and (layer, head) not in ends
    ]
    intact = attention(model, tokens, ends, [])
    without = attention(model, tokens, ends, feeders)
    random = []
    for _ in range(arguments.draws):
        order = torch.randperm(len(others), generator=generator)[: len(feeders)]
        random.append(attention(model, tokens, ends, [others[int(i)] for i in order]))
    values = torch.tensor(random, dtype=torch.float64)
    error = 1.96 * float(values.std()) / len(values) ** 0.5
    result = {
        "induction_heads": ends,
        "feeders": feeders,
        "intact": intact,
        "feeders_ablated": without,
        "random_ablated": float(values.mean()),
        "random_interval": error,
        "draws": len(random),
    }
    print(json.dumps(result, indent=1))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
