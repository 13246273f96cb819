"""What the recorded cases of circuits share: probes, contexts seen, circuits made by hand."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from recorded_coordinates import kind
from small_models import (
    MATCH,
    PREVIOUS,
    Job,
    planted,
)

from imir_detect.circuits.core import Circuit, Coverage
from imir_detect.circuits.matched import Matched, observe
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import Relation
from imir_detect.frame.lookups import INDUCTION, Lookup
from imir_detect.weights.model import ModelWeights

EVERY = torch.arange(10)


PARTNER = torch.tensor([1, 0, 3, 2, 7, -1, -1, 9, -1, 4])


NOBODY = Relation(torch.full((10,), -1), False)


def probe_of(weights: ModelWeights, samples: int = 48, **fields: Any) -> Probe:
    words = torch.arange(weights.vocab_size)
    context = min(weights.n_ctx or 8, weights.vocab_size)
    return Probe(weights, words, context, samples, **fields)


@cache
def soft_induction() -> ModelWeights:
    return planted(PREVIOUS, MATCH, noise=0.05)


@cache
def seen(name: str, lookup: Lookup = INDUCTION) -> Matched:
    weights = soft_induction() if name == "planted" else kind(name)
    return observe(probe_of(weights), lookup, None, stream=21, n=40)


LOOKED = (INDUCTION, Lookup(2), Lookup(-1), Lookup(hops=2), Lookup(prefix=2))


def replace_job(job: Job, **fields: Any) -> Job:
    return job._replace(**fields)


def made(sort: str, *of: tuple[int, int], strength: float = 0.9, **more: Any) -> Circuit:
    return Circuit(sort, of, (), {}, strength, Coverage(1.0, "positions"), **more)  # type: ignore[arg-type]
