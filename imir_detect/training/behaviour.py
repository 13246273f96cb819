"""The label that a model's measured behaviour earns, by the rule of the public contract."""

from __future__ import annotations

WORKS_ABOVE = 0.9
ABSENT_BELOW = 0.2


def measured_label(measured: dict[str, float]) -> str:
    """ "icl", "iwl", "mixed", "none", or "ambiguous" where an accuracy lies between the bars.

    ICL works when the accuracy on fresh associations exceeds 0.9, IWL when that on R does; at most
    0.2 is absent. A task without R has no IWL axis.

    >>> measured_label({"icl_accuracy": 0.99, "iwl_accuracy": 0.03})
    'icl'
    """
    works = {}
    for axis in ("icl", "iwl"):
        value = measured.get(f"{axis}_accuracy", 0.0)
        if ABSENT_BELOW < value <= WORKS_ABOVE:
            return "ambiguous"
        works[axis] = value > WORKS_ABOVE
    if works["icl"]:
        return "mixed" if works["iwl"] else "icl"
    return "iwl" if works["iwl"] else "none"
