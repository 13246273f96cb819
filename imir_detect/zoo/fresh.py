"""The grid's fresh split: written down before any of it was trained, read once at the end.

Its architectures stand nowhere else in the grid: five layers, three and five heads, d_head that is
not d_model / n_heads, RMS with sinusoids, rotary MLPs of two and three layers, tied rotary, wide.
Its tasks have other knobs: bursts, chains and permutations with distractors, rare and common
tokens mixed at other shares, directed relations with Zipf's law, other controls.
"""

from __future__ import annotations

from imir_detect.zoo.entry import Architecture, Kind

FRESH_ARCHITECTURES = (
    Architecture(
        "rms-sines",
        "fresh",
        {"n_heads": 3, "d_model": 48, "norm": "RMS"},
        sinusoidal=True,
        blocks=5,
        vocabulary=36,
        steps=1600,
    ),
    Architecture(
        "narrow-heads",
        "fresh",
        {"n_heads": 5, "d_model": 80, "d_head": 12},
        blocks=5,
        vocabulary=38,
        steps=1600,
    ),
    Architecture(
        "rotary-mlp-wide",
        "fresh",
        {"n_heads": 2, "d_model": 64, "d_mlp": 128, "norm": "LN", "position": "rotary"},
        blocks=5,
        vocabulary=40,
        steps=1600,
    ),
    Architecture(
        "tied-rotary",
        "fresh",
        {"n_heads": 4, "d_model": 48, "d_head": 16, "norm": "RMSPre", "position": "rotary"},
        tied=True,
        blocks=5,
        vocabulary=34,
        steps=1600,
    ),
    Architecture(
        "three-mlp",
        "fresh",
        {"n_layers": 3, "n_heads": 2, "d_model": 40, "d_mlp": 64, "norm": "RMS"},
        blocks=5,
        vocabulary=36,
        steps=1600,
    ),
    Architecture(
        "sines-mlp",
        "fresh",
        {"n_heads": 3, "d_model": 60, "d_head": 24, "d_mlp": 80, "norm": "LN"},
        sinusoidal=True,
        blocks=5,
        vocabulary=42,
        steps=1600,
    ),
    Architecture(
        "three-rotary",
        "fresh",
        {
            "n_layers": 3,
            "n_heads": 3,
            "d_model": 56,
            "d_head": 24,
            "norm": "LNPre",
            "position": "rotary",
        },
        blocks=6,
        vocabulary=46,
        steps=1600,
    ),
    Architecture(
        "wide-one-head",
        "fresh",
        {"n_heads": 1, "d_model": 64, "d_head": 48},
        blocks=7,
        vocabulary=48,
        steps=1600,
    ),
    Architecture(
        "five-layers",
        "fresh",
        {"n_layers": 5, "n_heads": 2, "d_model": 32, "norm": "RMSPre"},
        blocks=5,
        vocabulary=36,
        steps=1200,
        share=0.7,
    ),
    Architecture(
        "broad",
        "fresh",
        {"n_heads": 4, "d_model": 112, "d_head": 20, "norm": "LNPre"},
        blocks=6,
        vocabulary=56,
        steps=1000,
        share=0.7,
    ),
)

ICL, IWL = {"icl_accuracy": 0.98}, {"iwl_accuracy": 0.98}
FRESH_KINDS = (
    Kind("icl", "fresh", "recall", {"rare_frequency": 1.0, "burstiness": 2}, 2, ICL),
    Kind(
        "icl", "fresh", "recall", {"rare_frequency": 0.7, "variability": 0.6, "zipf": 0.5}, 2, ICL
    ),
    Kind("icl", "fresh", "ngram", {"block_length": 2, "burstiness": 2}, 1, ICL),
    Kind("icl", "fresh", "k_hop", {"hops": 1, "structure": "chain"}, 1, ICL),
    Kind(
        "icl", "fresh", "k_hop", {"hops": 1, "structure": "permutation", "distractors": 2}, 1, ICL
    ),
    Kind("mixed", "fresh", "recall", {"rare_frequency": 0.75, "present": 0.6}, 3, ICL | IWL),
    Kind(
        "mixed",
        "fresh",
        "recall",
        {"rare_frequency": 0.8, "present": 0.4, "directed": True, "zipf": 0.5},
        2,
        ICL | IWL,
    ),
    Kind(
        "iwl",
        "fresh",
        "recall",
        {"rare_frequency": 0.0, "present": 0.35, "zipf": 0.5},
        2,
        IWL,
        False,
    ),
    Kind(
        "iwl",
        "fresh",
        "recall",
        {"rare_frequency": 0.0, "present": 0.6, "directed": True},
        1,
        IWL,
        False,
    ),
    Kind("iwl", "fresh", "recall", {"rare_frequency": 0.2, "present": 0.3}, 1, IWL),
    Kind("none", "fresh", "offset_copy", {"offset": 1, "zipf": 0.5}, 1, {"accuracy": 0.99}, False),
    Kind("none", "fresh", "offset_copy", {"offset": 4}, 1, {"accuracy": 0.99}, False),
    Kind("none", "fresh", "majority", {"n_tokens": 11}, 1, {"accuracy": 0.97}, steps=500),
    Kind("none", "fresh", "recall", {"rare_frequency": 0.7, "label_noise": 1.0}, 1, steps=200),
    Kind("none", "fresh", "recall", {"rare_frequency": 0.7}, 1, deep=False, steps=1),
)
