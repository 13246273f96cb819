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
