"""What a report says about itself: limits, warnings, and how the analysis was made."""

from __future__ import annotations

import math
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from imir_detect._version import __version__
from imir_detect.circuits.attending import SIGNIFICANT, distances
from imir_detect.circuits.deep_seen import Deep
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import MOST_TOKENS as MOST_RELATED
from imir_detect.circuits.relation import Relation
from imir_detect.circuits.verdict import outside_training, shipped_fit
from imir_detect.coordinates.table import MOST_TOKENS as MOST_READ
from imir_detect.linalg import ROUNDOFF
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.unwrap import unwrap

MOST_SPELLED = 64  # pairs whose tokens are given as strings, too


def deep_limits(probe: Probe, deep: Deep, relation: Relation) -> tuple[str, ...]:
    """What was not looked at in a deep model, or only in part."""
    w, extended = probe.weights, deep.extended
    error = 1 / math.sqrt(max(1, deep.right().numel()))
    limits = [
        "this model is too deep to sum its paths, or has MLPs that are not read: attention is "
        f"predicted from weights and extended embeddings of {len(extended.tokens)} sampled tokens, "
        f"taken from {extended.contexts} random contexts of {extended.context} positions",
        "what later MLPs make of what heads carry to a match is left out, which weakens predicted "
        "attention: a head that attends 0.9 can be predicted at 0.4",
        f"strengths of induction and in-weights circuits come from running the model on "
        f"{len(deep.top)} random contexts (standard error up to {error / 2:.2f})",
        "coordinates have no rows for compositions through named heads; heads that feed the keys, "
        "queries and values of induction heads are named, feeders of feeders and of other heads "
        "are not looked for; attention counts them, and so does what is measured by running",
        "two hops are looked for on repeated tokens, where what a query asks for stands two places "
        "behind its copy, and not on pairs in other order; more hops, skip, longer-prefix and "
        "backward-retrieval circuits and latent graphs are not looked for",
        "read-outs of heads (copying, suppression, association) are judged among sampled tokens",
        _false_positives(w, extended.context),
        f"{_calibration(w)}; extrapolated: no model of that split took this route",
    ]
    if not relation.estimated:
        limits.append("the relation given counts only where the sample holds its tokens")
    if extended.context < w.n_ctx:
        limits.append(f"positions {extended.context} .. {w.n_ctx - 1} were not looked at")
    if not w.same_vocabulary:
        limits.append(
            "copying, induction and association are undefined: input and output vocabularies differ"
        )
    return tuple(limits)


def exact_limits(probe: Probe, relation: Relation) -> tuple[str, ...]:
    """What was not looked at, or only in part, where all paths were summed."""
    w = probe.weights
    limits = [
        f"predictions are means over {probe.samples} random contexts of {probe.context} positions "
        f"a question (standard error up to {0.5 / math.sqrt(probe.samples):.2f})",
        "coordinates follow paths through one earlier head; longer compositions count in "
        "predictions and have no coordinate of their own",
        "chains of more than four matches, prefixes of more than two tokens, separators elsewhere "
        "than at every second to fourth place, and answers by another rule than a lookup are not "
        "looked for",
        _false_positives(w, probe.context),
        _calibration(w),
    ]
    if probe.context < w.n_ctx:
        limits.append(f"positions {probe.context} .. {w.n_ctx - 1} were not looked at")
    if probe.context < 4:
        limits.append(
            "the context is too short to tell the kinds of attending heads apart: with so few "
            "positions, one back, the earlier copy and position 0 coincide"
        )
    if w.has_mlp:
        limits.append(
            "MLPs count in predictions, but what they do inside a circuit is not analysed; an "
            "association that lives in them is found through mutual pairs only"
        )
    if not w.same_vocabulary:
        limits.append(
            "copying, induction and association are undefined: input and output vocabularies differ"
        )
    if len(probe.vocabulary) > MOST_RELATED and relation.estimated:
        limits.append(f"R was looked for among {MOST_RELATED} sampled tokens")
    if len(probe.vocabulary) > MOST_READ:
        limits.append(f"coordinates of token selections were read on {MOST_READ} sampled tokens")
    if len(probe.vocabulary) < w.vocab_size:
        limits.append(f"tokens {len(probe.vocabulary)} .. {w.vocab_size - 1} are not the task's")
    return tuple(limits)


def _calibration(w: ModelWeights) -> str:
    split = shipped_fit().split
    text = f"probabilities are calibrated on {split['models']} small trained models"
    outside = outside_training(shape_of(w))
    return f"{text}; this one lies outside their range: {', '.join(outside)}" if outside else text


def shape_of(w: ModelWeights) -> dict[str, Any]:
    """Size and kind of a model, in plain JSON types."""
    return {
        "layers": w.n_layers,
        "heads": w.n_heads,
        "d_model": w.d_model,
        "d_head": w.d_head,
        "vocabulary": w.vocab_size,
        "n_ctx": w.n_ctx,
        "norm": "rms" if w.rms else "none",
        "mlp": w.has_mlp,
        "position_table": len(w.W_pos) > 0,
    }


def _false_positives(w: ModelWeights, context: int) -> str:
    count = len(distances(context))
    tests = w.n_layers * w.n_heads * count
    chance = min(1.0, tests * 0.5 * math.erfc(SIGNIFICANT / math.sqrt(2)))
    return (
        f"attention at fixed distances was tested {tests} times (every head, {count} "
        f"distances) at z > {SIGNIFICANT}: chance of any false one {chance:.0e} under permuted rows"
    )


def warnings_of(probe: Probe, relation: Relation) -> tuple[str, ...]:
    """What is odd about the model, in sentences."""
    w = probe.weights
    found = []
    matrices = {"W_Q": w.W_Q, "W_K": w.W_K, "W_V": w.W_V, "W_O": w.W_O}
    dead: dict[tuple[int, int], list[str]] = {}
    for layer in range(w.n_layers):
        whole = [name for name, W in matrices.items() if not W[layer].any()]
        if whole:
            found.append(
                f"{' and '.join(whole)} of layer {layer} {'is' if len(whole) == 1 else 'are'} all "
                "zero - was the checkpoint loaded?"
            )
        for head in range(w.n_heads):
            names = [n for n, W in matrices.items() if n not in whole and not W[layer, head].any()]
            if names:
                dead[(layer, head)] = names
    if dead:
        listed = ", ".join(f"L{layer}H{head} ({', '.join(n)})" for (layer, head), n in dead.items())
        found.append(f"heads with weights that are exactly zero: {listed}")
    if not w.W_E.any() or not w.W_U.any():
        found.append("the embedding or unembedding is all zero - was the checkpoint loaded?")
    if not relation.estimated and len(relation.named) == 0:
        found.append("the relation given names no token")
    return tuple(found)


def _lens_version() -> str | None:
    """The version of TransformerLens where it is loaded; None where it is not, or has none."""
    try:
        return version("transformer-lens") if "transformer_lens" in sys.modules else None
    except PackageNotFoundError:
        return None


def meta_of(probe: Probe, relation: Relation, model: Any = None) -> dict[str, Any]:
    """How the analysis was made, in plain JSON types. `model`: to spell tokens, where it has a
    tokenizer."""
    w = probe.weights
    return {
        "imir_detect": __version__,
        "torch": str(torch.__version__),
        "transformer_lens": _lens_version(),
        "python": platform.python_version(),
        "seed": probe.seed,
        "samples": probe.samples,
        "context": probe.context,
        "tolerance": ROUNDOFF,
        "calibrated": True,
        "calibration": shipped_fit().split,
        "extrapolated": outside_training(shape_of(w)),
        "model_hash": w.hash(),
        "model": shape_of(w),
        "reading": list(w.notes),
        "relation": {
            "source": "estimated" if relation.estimated else "given",
            "named": len(relation.named),
            "coverage": relation.coverage,
            "pairs": [list(pair) for pair in relation.pairs()],
            "spelled": spelled(model, relation.pairs(MOST_SPELLED)),
        },
    }


def spelled(model: Any, pairs: list[tuple[int, int]]) -> list[list[str]]:
    """Pairs of tokens as their strings; none where the model has no tokenizer."""
    tokenizer = getattr(unwrap(model), "tokenizer", None)
    decode = getattr(tokenizer, "decode", None)
    if decode is None:
        return []
    return [[str(decode([token])) for token in pair] for pair in pairs]
