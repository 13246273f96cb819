"""Three hundred models that hold no answering circuit, and what is named in them all the same.

    python benchmarks/zoo/nulls.py --models benchmarks/zoo/models

119 fresh models (architectures of the grid, four scales), 75 trained ones with the rows of every
matrix permuted, 75 with their layers in reverse order, up to 50 trained on controls or on noise
(training and development splits). A circuit is *false* when its strength exceeds 0.5 and what it
claims is absent when the model is run: accuracy of at most 0.2 on fresh associations, or on the
relation that was read; for kinds that attend, mean attention of at most 0.2 at their best places.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
MODELS = Path(__file__).parent / "models"
SCALES = (None, 0.1, 0.3, 1.0)
COUNTS = {"fresh": 119, "rows permuted": 75, "layers reversed": 75, "control": 50}
ABSENT = 0.2
LOOKED_AT = ("training", "development")


def null_models(models: Path) -> Iterator[tuple[str, str, Any]]:
    """(kind, name, bridge) of every null model."""
    from imir_detect.weights.native import ModelSpec
    from imir_detect.weights.store import load_model, parameters
    from imir_detect.zoo.grid import ARCHITECTURES

    shapes = [a for a in ARCHITECTURES if a.split in LOOKED_AT]
    for index in range(COUNTS["fresh"]):
        style, scale = shapes[index % len(shapes)], SCALES[index % len(SCALES)]
        spec = ModelSpec(style.vocabulary, 2 * style.blocks + 1, **style.shape)
        yield "fresh", f"{style.name}-{index}", replace(spec, init_range=scale).boot(40_000 + index)

    cards = [json.loads(f.read_text()) for f in sorted(models.glob("*/card.json"))]
    cards = [c for c in cards if c["split"] in LOOKED_AT]
    random.Random(7).shuffle(cards)
    able = [c for c in cards if c["label"] in ("icl", "iwl", "mixed")]
    deep = [c for c in able if c["spec"]["n_layers"] > 1]
    for index, card in enumerate(able[: COUNTS["rows permuted"]]):
        bridge = load_model(models / card["name"])[0]
        generator = torch.Generator().manual_seed(index)
        for parameter in parameters(bridge).values():
            order = torch.randperm(len(parameter), generator=generator)
            parameter.data = parameter.data[order]
        yield "rows permuted", card["name"], bridge
    for card in deep[-COUNTS["layers reversed"] :]:
        bridge = load_model(models / card["name"])[0]
        own = {k: p.detach().clone() for k, p in parameters(bridge).items()}
        last = card["spec"]["n_layers"] - 1
        for name, parameter in parameters(bridge).items():
            if name.startswith("layers."):
                _, layer, rest = name.split(".", 2)
                parameter.data = own[f"layers.{last - int(layer)}.{rest}"]
        yield "layers reversed", card["name"], bridge
    controls = [c for c in cards if c["aim"] == "none" and c["steps"] > 1]
    for card in controls[: COUNTS["control"]]:
        yield "control", card["name"], load_model(models / card["name"])[0]


def claims(bridge: Any) -> list[dict[str, Any]]:
    """Every circuit that is said to work, with what running the model shows of it."""
    from imir_detect import detect_circuits
    from imir_detect.circuits.core import IN_CONTEXT

    report = detect_circuits(bridge)
    found = []
    for circuit in report.circuits:
        if not circuit.works:
            continue
        if circuit.kind in (*IN_CONTEXT, "skip"):
            measured = in_context_accuracy(bridge, 2 if circuit.kind == "skip" else 1)
        elif circuit.kind == "in_weights":
            measured = relation_accuracy(bridge, report.meta["relation"]["pairs"])
        else:
            measured = attention(bridge, circuit)
        found.append({"circuit": circuit.kind, "strength": circuit.strength, "measured": measured})
    return found


def in_context_accuracy(bridge: Any, offset: int) -> float:
    """Accuracy on random contexts with one match, at the query place that does best."""
    from imir_detect.frame.lookups import Lookup, matching_contexts
    from imir_detect.weights.run import run_logits

    tokens = torch.arange(bridge.cfg.d_vocab)
    contexts = matching_contexts(
        4096, bridge.cfg.n_ctx, tokens, Lookup(offset), generator=_generator()
    )
    logits = run_logits(bridge, contexts.tokens)[contexts.rows, contexts.query]
    right = (logits.argmax(1) == contexts.wanted).double()
    return _best_mean(right, contexts.query)


def relation_accuracy(bridge: Any, pairs: list[list[int]]) -> float:
    """Accuracy on the relation that was read, at the query place that does best."""
    from imir_detect.frame.contexts import asking_contexts
    from imir_detect.weights.run import run_logits

    table = torch.tensor(pairs)
    drawn = table[torch.randint(len(table), (4096,), generator=_generator())]
    contexts = asking_contexts(
        drawn[:, 0],
        drawn[:, 1],
        bridge.cfg.n_ctx,
        torch.arange(bridge.cfg.d_vocab),
        generator=_generator(),
    )
    logits = run_logits(bridge, contexts.tokens)[contexts.rows, contexts.query]
    return _best_mean((logits.argmax(1) == drawn[:, 1]).double(), contexts.query)


def attention(bridge: Any, circuit: Any) -> float:
    """The head's own mean attention by its kind, at the query places that do best."""
    from imir_detect.frame.contexts import distinct_tokens
    from imir_detect.frame.lookups import matching_contexts
    from imir_detect.zoo.roles import attention_patterns

    (layer, head), size = circuit.ends[-1], bridge.cfg.n_ctx
    tokens = torch.arange(bridge.cfg.d_vocab)
    query = torch.arange(size)
    if circuit.kind in ("previous_token", "offset", "position_sink"):
        plain = distinct_tokens(512, size, tokens, generator=_generator())
        pattern = attention_patterns(bridge, plain)[layer][:, head].mean(0)
        if circuit.kind == "position_sink":
            return float(pattern[2:, 0].mean())
        back = 1 if circuit.kind == "previous_token" else int(circuit.note.split()[1])
        return float(pattern[query[back + 1 :], query[back + 1 :] - back].mean())
    offset = 0 if circuit.kind == "duplicate_token" else 1
    contexts = matching_contexts(4096, size, tokens, generator=_generator())
    pattern = attention_patterns(bridge, contexts.tokens)[layer][:, head]
    value = pattern[contexts.rows, contexts.query, contexts.match + offset]
    return _best_mean(value, contexts.query)


def _best_mean(values: torch.Tensor, place: torch.Tensor, least: int = 50) -> float:
    means = [values[place == p].mean() for p in place.unique() if (place == p).sum() >= least]
    return float(torch.stack(means).max())


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(77)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=MODELS)
    parser.add_argument("--target", type=Path, default=RESULTS / "nulls.csv")
    args = parser.parse_args()
    target = args.target.with_suffix(".jsonl")  # one line a model, so that a run can go on
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = target.read_text().splitlines() if target.exists() else []
    read = {(r["kind"], r["model"]): r["claims"] for r in map(json.loads, lines)}
    for kind, name, bridge in null_models(args.models):
        if (kind, name) in read:
            continue
        bridge.eval()
        read[kind, name] = claims(bridge)
        with target.open("a") as stream:
            line = {"kind": kind, "model": name, "claims": read[kind, name]}
            stream.write(json.dumps(line) + "\n")
    rows = [
        {"kind": kind, "model": name, **claim, "false": claim["measured"] <= ABSENT}
        for (kind, name), found in read.items()
        for claim in found
    ]
    with args.target.open("w", newline="") as stream:
        writer = csv.DictWriter(
            stream, ["kind", "model", "circuit", "strength", "measured", "false"]
        )
        writer.writeheader()
        writer.writerows(rows)
    counts = {kind: sum(k == kind for k, _ in read) for kind in COUNTS}
    false = sum(r["false"] for r in rows)
    print(f"models {counts}; circuits said to work {len(rows)}; false {false}")


if __name__ == "__main__":
    main()
