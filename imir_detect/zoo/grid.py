"""The zoo's grid: which models there are, before any is trained.

Four splits, by when they were looked at. `training` and `development` share their tasks
(undirected recall, copying, counting). `held-out` has other architectures and tasks (directed
relations, in-context n-grams, k-hop maps, other controls); it was scored once, then looked at while
the detector was mended, and has been development data since. `fresh` shares architectures and knobs
with none of them and is read once, by a finished detector. Seeds differ everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from imir_detect.training.loop import Recipe
from imir_detect.zoo.entry import SPLITS, Architecture, Entry, Kind, Split
from imir_detect.zoo.fresh import FRESH_ARCHITECTURES, FRESH_KINDS

ARCHITECTURES = (
    Architecture("plain", "training", {"n_heads": 2, "d_model": 48}),
    Architecture("one-head", "training", {"n_heads": 1, "d_model": 32}, vocabulary=38),
    Architecture("four-heads", "training", {"n_heads": 4, "d_model": 64, "norm": "LN"}),
    Architecture(
        "long", "training", {"n_heads": 2, "d_model": 64, "norm": "LN"}, False, False, 8, 48
    ),
    Architecture("one-layer", "training", {"n_layers": 1, "n_heads": 2, "d_model": 32}),
    Architecture(
        "dev-deep", "development", {"n_layers": 3, "n_heads": 3, "d_model": 48}, share=0.4
    ),
    Architecture("dev-mlp", "development", {"n_heads": 2, "d_model": 48, "d_mlp": 64}, share=0.4),
    Architecture("dev-tied", "development", {"n_heads": 2, "d_model": 64}, tied=True, share=0.4),
    Architecture(
        "dev-rotary",
        "development",
        {"n_heads": 2, "d_model": 64, "norm": "LN", "position": "rotary"},
        share=0.4,
    ),
    Architecture(
        "dev-four",
        "development",
        {"n_layers": 4, "n_heads": 2, "d_model": 48, "norm": "RMS"},
        share=0.4,
    ),
    Architecture("three-layers", "held-out", {"n_layers": 3, "n_heads": 2, "d_model": 40}),
    Architecture(
        "eight-heads",
        "held-out",
        {"n_heads": 8, "d_model": 64, "norm": "RMS", "position": "rotary"},
    ),
    Architecture("mlp", "held-out", {"n_heads": 2, "d_model": 48, "d_mlp": 96, "norm": "LN"}),
    Architecture("sinusoidal", "held-out", {"n_heads": 2, "d_model": 56}, sinusoidal=True),
    Architecture("tied", "held-out", {"n_heads": 4, "d_model": 56, "norm": "LN"}, tied=True),
    Architecture("rotary", "held-out", {"n_heads": 2, "d_model": 48, "position": "rotary"}),
    Architecture(
        "four-layers",
        "held-out",
        {"n_layers": 4, "n_heads": 1, "d_model": 36, "norm": "RMS", "position": "rotary"},
    ),
    Architecture(
        "rotary-mlp",
        "held-out",
        {"n_heads": 3, "d_model": 48, "d_mlp": 96, "norm": "RMSPre", "position": "rotary"},
        blocks=7,
        vocabulary=44,
    ),
    Architecture(
        "large",
        "held-out",
        {"n_heads": 4, "d_model": 128, "norm": "LNPre"},
        vocabulary=52,
        share=0.5,
    ),
)

ICL, IWL = {"icl_accuracy": 0.98}, {"iwl_accuracy": 0.98}
BOTH = ICL | IWL
DIRECTED = {"directed": True}
KINDS = (
    Kind("icl", "training", "recall", {"rare_frequency": 1.0}, 5, ICL),
    Kind("icl", "training", "recall", {"rare_frequency": 0.5, "variability": 0.5}, 4, ICL),
    Kind("iwl", "training", "recall", {"rare_frequency": 0.0, "present": 0.5}, 4, IWL, False),
    Kind("iwl", "training", "recall", {"rare_frequency": 0.0, "present": 0.2}, 2, IWL, False),
    Kind("mixed", "training", "recall", {"rare_frequency": 0.85, "present": 0.5}, 7, BOTH),
    Kind("none", "training", "recall", {"rare_frequency": 0.5, "label_noise": 1.0}, 2, steps=300),
    Kind("none", "training", "copy_last", {}, 1, {"accuracy": 0.99}, False),
    Kind("none", "training", "offset_copy", {"offset": 2}, 1, {"accuracy": 0.99}, False),
    Kind("none", "training", "unigram", {"n_common": 16}, 1, deep=False, steps=400),
    Kind("none", "training", "recall", {"rare_frequency": 0.5}, 2, deep=False, steps=1),
    Kind(
        "icl",
        "held-out",
        "recall",
        {"rare_frequency": 0.5, "variability": 0.5, **DIRECTED},
        4,
        ICL,
    ),
    Kind("icl", "held-out", "ngram", {"block_length": 2}, 3, ICL),
    Kind("icl", "held-out", "k_hop", {"hops": 1}, 3, ICL),
    Kind(
        "iwl",
        "held-out",
        "recall",
        {"rare_frequency": 0.0, "present": 0.5, **DIRECTED},
        3,
        IWL,
    ),
    Kind(
        "iwl",
        "held-out",
        "recall",
        {"rare_frequency": 0.0, "present": 0.3, "zipf": 1.0, **DIRECTED},
        2,
        IWL,
    ),
    Kind(
        "mixed",
        "held-out",
        "recall",
        {"rare_frequency": 0.85, "present": 0.5, **DIRECTED},
        6,
        BOTH,
    ),
    Kind("none", "held-out", "sorting", {"n_items": 6}, 1, {"accuracy": 0.99}, steps=800),
    Kind("none", "held-out", "majority", {"n_tokens": 13}, 1, {"accuracy": 0.97}, steps=600),
    Kind("none", "held-out", "periodic", {"n_tokens": 16}, 1, {"accuracy": 0.99}, steps=600),
    Kind(
        "none",
        "held-out",
        "recall",
        {"rare_frequency": 0.5, "label_noise": 1.0, **DIRECTED},
        1,
        steps=300,
    ),
    Kind("none", "held-out", "recall", {"rare_frequency": 0.5, **DIRECTED}, 1, steps=1),
)
FIRST_SEED = {
    "training": 200_000,
    "development": 300_000,
    "held-out": 500_000,
    "fresh": 700_000,
}


def grid(split: Split | None = None) -> list[Entry]:
    """Every entry of the zoo, or of one split, in the order in which it is built."""
    entries: list[Entry] = []
    for chosen in SPLITS:
        seeds = iter(range(FIRST_SEED[chosen], FIRST_SEED[chosen] + 10_000))
        for style in (a for a in (*ARCHITECTURES, *FRESH_ARCHITECTURES) if a.split == chosen):
            for index, kind in enumerate(_kinds(chosen)):
                entries += _entries(style, kind, index, seeds)
    return [entry for entry in entries if split in (None, entry.split)]


def _kinds(split: Split) -> list[Kind]:
    if split == "fresh":
        return list(FRESH_KINDS)
    return [kind for kind in KINDS if (kind.split == "held-out") == (split == "held-out")]


def _entries(style: Architecture, kind: Kind, index: int, seeds: Iterator[int]) -> Iterator[Entry]:
    if kind.deep and style.shape.get("n_layers", 2) < 2 and kind.steps is None:
        return
    for number in range(max(1, round(kind.count * style.share))):
        steps = kind.steps or style.steps
        # A single step at rate 0 leaves a fresh model.
        recipe = Recipe(
            steps=steps,
            batch=64,
            rate=0.0 if steps == 1 else 3e-3,
            evaluate_every=100,
            stop_at=kind.stop_at,
            seed=next(seeds),
        )
        name = f"{style.name}-{kind.aim}-{kind.task}-{index}{'abcdefgh'[number]}"
        shape = dict(style.shape)
        if steps == 1:
            shape["init_range"] = (None, 0.1, 0.3, 1.0)[(recipe.seed + number) % 4]
        yield Entry(
            name,
            style.split,
            kind.task,
            _knobs(style, kind),
            replace(style, shape=shape),
            recipe,
            kind.aim,
        )


def _knobs(style: Architecture, kind: Kind) -> dict[str, Any]:
    """The kind's knobs, with the architecture's vocabulary and number of blocks."""
    size = style.vocabulary
    if kind.task == "recall":
        rare = kind.knobs["rare_frequency"]
        # Fresh values of common tokens need pairs that no block uses.
        common = {0.0: size, 1.0: 0}.get(rare, 4 * style.blocks)
        return {**kind.knobs, "n_blocks": style.blocks, "n_common": common, "n_rare": size - common}
    if kind.task in ("ngram", "k_hop"):
        return {**kind.knobs, "n_blocks": style.blocks, "n_rare": size}
    if kind.task in ("copy_last", "offset_copy"):
        return {"n_tokens": 13, "n_common": size, **kind.knobs}
    return dict(kind.knobs)
