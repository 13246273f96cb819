"""From circuits to a label: what the circuits can do, as probabilities.

Until a zoo calibrates it, each of the two questions (does an in-context circuit work? does
in-weights association?) is a logistic function of the strongest such circuit's strength around
one half; the four labels are the products. The slope is a choice of ours, not a fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from imir_detect.circuits.core import IN_CONTEXT, WORKS, Circuit

LABELS = ("icl", "iwl", "mixed", "none")
SLOPE = 12.0


def features(circuits: Iterable[Circuit]) -> dict[str, float]:
    """Functional quantities of whole circuits, which carry over in width, depth and vocabulary:
    of the strongest in-context circuit, and of in-weights association, the strength, the coverage
    and the nats of its weakest step; zeros where there is none."""
    result = {}
    for axis, kinds in (("icl", IN_CONTEXT), ("iwl", ("in_weights",))):
        own = [c for c in circuits if c.kind in kinds]
        best = max(own, key=lambda c: c.strength, default=None)
        nats = [] if best is None else [v for u, v in best.effects.items() if "direct" not in u]
        result[f"{axis}_strength"] = 0.0 if best is None else best.strength
        result[f"{axis}_coverage"] = 0.0 if best is None else best.coverage.share
        result[f"{axis}_nats"] = min(nats, default=0.0)
    return result


def label_probabilities(circuits: Iterable[Circuit]) -> dict[str, float]:
    """Probabilities of the four labels; they sum to 1, and the largest is the label.

    >>> round(label_probabilities([])["none"], 3)
    0.995
    """
    circuits = list(circuits)
    icl = _works(max((c.strength for c in circuits if c.kind in IN_CONTEXT), default=0.0))
    iwl = _works(max((c.strength for c in circuits if c.kind == "in_weights"), default=0.0))
    return {
        "icl": icl * (1 - iwl),
        "iwl": iwl * (1 - icl),
        "mixed": icl * iwl,
        "none": (1 - icl) * (1 - iwl),
    }


def _works(strength: float) -> float:
    return 1 / (1 + math.exp(-SLOPE * (strength - WORKS)))
