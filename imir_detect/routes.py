"""Two ways from weights to circuits: all paths summed, or extended embeddings for deep models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from imir_detect.circuits import find_circuits
from imir_detect.circuits.core import Circuit
from imir_detect.circuits.deep import deep_circuits
from imir_detect.circuits.deep_hops import with_hops
from imir_detect.circuits.deep_relation import extended_relation
from imir_detect.circuits.deep_seen import CONTEXTS, Deep
from imir_detect.circuits.graph_induction import GraphInduction, graph_induction, merged
from imir_detect.circuits.heads import Head, head_table
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import SAMPLES, Probe
from imir_detect.circuits.relation import Relation, estimate_relation
from imir_detect.coordinates.deep_table import deep_table
from imir_detect.coordinates.extended import Extended
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.coordinates.profiles import Profile, position_profiles
from imir_detect.coordinates.table import Coordinate, coordinate_table
from imir_detect.notes import deep_limits, exact_limits
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.run import run_residuals

# Above this many multiplications a token, heads, or numbers that heads write on the contexts of one
# question, paths are not summed but approximated.
LARGEST_EXACT = 6_000_000
MOST_HEADS = 64
MOST_WRITTEN = 100_000_000


@dataclass(frozen=True)
class Found:
    """What a route found, what it did not look at, and the probe that it used in the end.

    `wins` and `by_match`: what the whole model answers (`Findings`); None where strengths say it.
    """

    probe: Probe
    relation: Relation
    circuits: tuple[Circuit, ...]
    wins: dict[str, float] | None
    by_match: float | None
    heads: tuple[Head, ...]
    coordinates: tuple[Coordinate, ...]
    profiles: tuple[Profile, ...]
    limits: tuple[str, ...]
    route: str
    errors: dict[str, list[float]]
    graph: GraphInduction | None = None


def too_deep(weights: ModelWeights, context: int) -> bool:
    """Whether summing all paths would take minutes or gigabytes, or cannot be done since an MLP was
    not read."""
    per_token = sum(tensor.numel() for name, tensor in weights.tensors() if name in ("W_Q", "W_O"))
    inner = sum(m.W_in.numel() for m in weights.mlps if m is not None and hasattr(m, "W_in"))
    heads = weights.n_layers * weights.n_heads
    if not weights.readable or heads > MOST_HEADS:
        return True
    written = 2 * SAMPLES * context * heads * weights.d_model
    return 2 * (per_token + inner) > LARGEST_EXACT or written > MOST_WRITTEN


def exact_route(model: Any, probe: Probe, relation: Relation | None) -> Found:
    """All paths summed on random contexts."""
    known = relation or estimate_relation(probe)
    patterns = Patterns.take(probe)
    found = find_circuits(probe, known, patterns)
    graph = graph_induction(probe)
    circuits = merged(found.circuits, graph)
    wins, by_match = found.wins, found.by_match
    if graph is not None and graph.circuit in circuits and graph.circuit.strength > by_match:
        wins, by_match = {**wins, "icl": graph.circuit.strength}, graph.circuit.strength
    return Found(
        probe=probe,
        relation=known,
        circuits=circuits,
        wins=wins,
        by_match=by_match,
        heads=head_table(probe, patterns, known, circuits),
        coordinates=coordinate_table(
            probe.weights,
            patterns.plain,
            relation=known.partner,
            tokens=probe.vocabulary,
            seed=probe.seed,
        ),
        profiles=position_profiles(patterns.plain),
        limits=exact_limits(probe, known),
        route="all paths summed",
        errors=_errors(patterns, probe.weights),
        graph=graph,
    )


def deep_route(model: Any, probe: Probe, relation: Relation | None) -> Found:
    """Attention predicted from weights and extended embeddings; answers from running the model."""
    weights = probe.weights

    def run(tokens: Tensor) -> list[Tensor]:
        if isinstance(model, ModelWeights):
            return _sum_residuals(weights, tokens)
        return run_residuals(model, weights, tokens)

    extended = Extended.take(weights, run, probe.vocabulary, probe.context, seed=probe.seed)
    known = relation or extended_relation(weights, extended)
    deep = Deep.take(weights, extended, run, seed=probe.seed)
    sampled = Probe(weights, extended.tokens, extended.context, CONTEXTS, probe.seed)
    circuits = with_hops(deep_circuits(sampled, deep, known), deep)
    return Found(
        probe=sampled,
        relation=known,
        circuits=circuits,
        wins=None,
        by_match=None,
        heads=head_table(sampled, deep.patterns(), known, circuits, extended),
        coordinates=deep_table(
            weights, extended, deep.plain, relation=known.partner, seed=probe.seed
        ),
        profiles=position_profiles(deep.plain),
        limits=deep_limits(sampled, deep, known),
        route="extended embeddings",
        errors=_errors(deep.patterns(), weights),
    )


def _errors(patterns: Patterns[Any], weights: ModelWeights) -> dict[str, list[float]]:
    """Standard error of each head's predicted attention over the random contexts, in the order of
    the head table."""
    rows = [patterns.errors(head) for head in weights.heads]
    names = ("previous_token", "duplicate_token", "induction")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _sum_residuals(weights: ModelWeights, tokens: Tensor) -> list[Tensor]:
    """What `run_residuals` gives, for bare weights."""
    trace = sum_paths(weights, tokens)
    rows = [trace.embedded]
    for written, rest in zip(trace.written, trace.rest, strict=True):
        rows.append(rows[-1] + written.sum(1) + rest)
    return rows
