"""From circuits to a label: what the circuits can do, as calibrated probabilities.

Two questions (does an in-context circuit work? does in-weights association?) are each answered by a
logistic function of functional quantities of whole circuits, fitted on the training split of the
zoo against measured behaviour; the four labels are the products. `verdict.json` holds the fit, with
the hash of the split it comes from; `benchmarks/zoo/calibrate.py` writes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from imir_detect.circuits.core import Circuit
from imir_detect.errors import UnreadableFileError
from imir_detect.strict import read_json

LABELS = ("icl", "iwl", "mixed", "none")
AXES: tuple[Literal["icl", "iwl"], ...] = ("icl", "iwl")
FILE = Path(__file__).with_name("verdict.json")
NEAREST = 0.02  # to 0 and 1: shares are means over a few hundred questions


@dataclass(frozen=True)
class Logistic:
    """1 / (1 + exp(-(bias + sum of weights x features)))."""

    bias: float
    weights: dict[str, float]

    def __call__(self, values: Mapping[str, float]) -> float:
        x = self.bias + sum(weight * values[name] for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


@dataclass(frozen=True)
class Fit:
    """What the training split taught.

    - `works`: per axis, the chance that the behaviour works (accuracy above 0.9, not at most 0.2).
    - `accuracy`: per axis, the accuracy to expect.
    - `ranges`: of numbers that describe a model, (least, most) in the split; `kinds`: of words.
    - `split`: name, number of models and hash of the split.
    """

    works: dict[str, Logistic]
    accuracy: dict[str, Logistic]
    ranges: dict[str, tuple[float, float]]
    kinds: dict[str, tuple[Any, ...]]
    split: dict[str, Any]


@cache
def shipped_fit() -> Fit:
    """The fit that the package ships."""
    return read_fit(FILE)


def read_fit(path: Path) -> Fit:
    """A fit from its JSON file."""
    try:
        data = read_json(path)
        return Fit(
            works={axis: Logistic(**data["works"][axis]) for axis in AXES},
            accuracy={axis: Logistic(**data["accuracy"][axis]) for axis in AXES},
            ranges={name: (low, high) for name, (low, high) in data["ranges"].items()},
            kinds={name: tuple(values) for name, values in data["kinds"].items()},
            split=data["split"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableFileError(
            f"no readable calibration at {path}",
            got=f"{type(error).__name__}: {error}",
            wanted="a file that benchmarks/zoo/calibrate.py wrote",
            todo="install the package again, or calibrate anew",
        ) from error


def features(
    circuits: Iterable[Circuit],
    wins: Mapping[str, float] | None = None,
    by_match: float | None = None,
) -> dict[str, float]:
    """Functional quantities of whole circuits, which carry over in width, depth and vocabulary.

    Of the strongest in-context circuit, and of in-weights association: the strength, the coverage
    and the nats of its weakest step; zeros where there is none. Of the whole model (`Findings`; the
    strengths, where it is not given): the share it answers (`wins`), and for the context the part
    that is owed to the match (`matched`). Of all shares also the log-odds, in nats.
    """
    result = {}
    circuits = list(circuits)
    for axis in AXES:
        own = [c for c in circuits if (c.in_context if axis == "icl" else c.kind == "in_weights")]
        best = max(own, key=lambda c: c.strength, default=None)
        nats = [] if best is None else [v for u, v in best.effects.items() if "direct" not in u]
        strength = 0.0 if best is None else best.strength
        result[f"{axis}_coverage"] = 0.0 if best is None else best.coverage.share
        result[f"{axis}_nats"] = min(nats, default=0.0)
        answered = strength if wins is None else wins[axis]
        matched = by_match if by_match is not None and axis == "icl" else answered
        shares = {"strength": strength, "wins": answered, "matched": min(matched, answered)}
        for name, share in shares.items():
            result[f"{axis}_{name}"] = share
            result[f"{axis}_{name}_odds"] = _log_odds(share)
    return result


def _log_odds(share: float) -> float:
    """Log-odds of a share; shares nearer than `NEAREST` to 0 or 1 count as there."""
    inside = min(max(share, NEAREST), 1 - NEAREST)
    return math.log(inside / (1 - inside))


def label_probabilities(
    circuits: Iterable[Circuit],
    wins: Mapping[str, float] | None = None,
    by_match: float | None = None,
) -> dict[str, float]:
    """Probabilities of the four labels; they sum to 1, and the largest is the label.

    >>> probabilities = label_probabilities([])
    >>> max(probabilities, key=probabilities.get), probabilities["none"] > 0.9
    ('none', True)
    """
    return probabilities_of(features(circuits, wins, by_match))


def probabilities_of(values: Mapping[str, float]) -> dict[str, float]:
    """`label_probabilities`, from `features`."""
    icl, iwl = (shipped_fit().works[axis](values) for axis in AXES)
    return {
        "icl": icl * (1 - iwl),
        "iwl": iwl * (1 - icl),
        "mixed": icl * iwl,
        "none": (1 - icl) * (1 - iwl),
    }


def predicted_accuracy(
    circuits: Iterable[Circuit],
    wins: Mapping[str, float] | None = None,
    by_match: float | None = None,
) -> dict[str, float]:
    """The accuracies to expect on fresh associations ("icl") and on R ("iwl"), in [0, 1]."""
    values = features(circuits, wins, by_match)
    return {axis: shipped_fit().accuracy[axis](values) for axis in AXES}


def outside_training(model: Mapping[str, Any]) -> list[str]:
    """What about a model lies outside the training split, in words; empty: nothing.

    `model` describes it as `Report.meta["model"]` does.
    """
    fit, found = shipped_fit(), []
    for name, (low, high) in fit.ranges.items():
        value = model.get(name)
        if value is not None and not low <= value <= high:
            found.append(f"{name} {value:g}, not {low:g} .. {high:g}")
    for name, values in fit.kinds.items():
        value = model.get(name)
        if value is not None and value not in values:
            found.append(f"{name} {value}, not {' or '.join(map(str, values))}")
    return found
