"""Induction along a latent graph: layer 0 looks at every position's parent, a later head matches.

A model that has learned a graph on positions estimates, in context, how children depend on their
parents (Nichani, Damian and Lee, ICML 2024). On the chain, where the parent is the position
before, that is an induction head; here it is found for any graph that layer 0 attends along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import Bool, Float, HeadIndex, Int
from imir_detect.circuits.attending import FEW
from imir_detect.circuits.attribution import ENOUGH, leading, logit_margins
from imir_detect.circuits.causal_graph import MAX_POSITIONS, CausalGraph, recover_causal_graph
from imir_detect.circuits.core import IN_CONTEXT, WORKS, Circuit, Coverage, short
from imir_detect.circuits.probe import Probe, answers
from imir_detect.coordinates.pathsum import (
    EMBED,
    OUTPUT,
    PORTS,
    Edge,
    Node,
    Port,
    Trace,
    sum_edges,
    sum_paths,
)
from imir_detect.frame.contexts import Contexts
from imir_detect.weights.model import ModelWeights

STREAM = 60  # of the probe's random state
GAINS = 0.1  # attention to the right children that a matching head gains by the graph
READS: tuple[tuple[Port, ...], ...] = (("K",), ("K", "Q"), ("K", "Q", "V"))
NEARLY = 0.9  # strength from which nothing is gained by finding a circuit once more
FEWEST_NODES = 5
FEWEST_TOKENS = 3  # of two tokens, the other one is always the answer


@dataclass(frozen=True)
class GraphInduction:
    """The circuit, and the graph that its feeders attend along."""

    circuit: Circuit
    graph: CausalGraph

    def to_dict(self) -> dict[str, Any]:
        """The graph in plain JSON types."""
        return {
            "nodes": self.graph.n_nodes,
            "n_parents": self.graph.n_parents,
            "roots": list(self.graph.roots),
            "edges": [
                {"parent": e.parent, "child": e.child, "head": e.head, "confidence": e.confidence}
                for e in self.graph.edges
            ],
        }


def graph_induction(probe: Probe) -> GraphInduction | None:
    """The induction circuit along the graph that layer 0 attends along, or None.

    Asked are sequences that follow the graph: every child shows a fixed function of what its
    parents show, a new one in every sequence; the last tokens repeat what some child's parents
    show, and that child's token is right. The control has the same tokens with their places
    exchanged at random. The circuit is layer 0's heads with edges, and later heads that attend,
    by the graph, to the right children and bring the answer.

    - `strength`: the share that the circuit answers by itself; no more than the whole model does,
      nor than twice what the circuit gains over the control.
    - `effects`, in nats: "parent", how far parents stand out in layer 0 (mean); "match", by how
      much right children stand out where the later heads look; "copy", what these bring to the
      answer over the mean token.

    None where it cannot be (one layer, no position table, an output vocabulary of its own), where
    layer 0 attends along no graph, or where the circuit does not work (strength of a half or
    less): a look that nothing later uses is no learned graph.
    """
    graph = _graph_of(probe)
    if graph is None:
        return None
    weights = probe.weights
    contexts, right = graph_contexts(
        graph, probe.vocabulary, probe.samples, generator=probe.generator(STREAM)
    )
    mixed = exchange_places(contexts, graph.n_nodes, generator=probe.generator(STREAM + 1))
    full, control = (sum_paths(weights, c.tokens) for c in (contexts, mixed))
    copiers = _copiers(probe, full, control, contexts, right)
    if not copiers:
        return None
    whole = _share_right(weights, full, contexts)
    best: tuple[float, set[Edge], Trace] | None = None
    for ports in READS:
        edges = _edges(graph, copiers, ports)
        alone = sum_edges(weights, contexts.tokens, edges, full)
        share = _share_right(weights, alone, contexts)
        if best is None or share > best[0]:
            best = share, edges, alone
        if share >= ENOUGH * whole:
            break
    assert best is not None
    share, edges, alone = best
    chance = _share_right(weights, sum_edges(weights, mixed.tokens, edges, control), mixed)
    strength = min(share, whole, 2 * (share - chance))
    if strength <= WORKS:
        return None
    brought = sum(copiers.values())
    match = sum(_stands_out(alone, head, right) * nats for head, nats in copiers.items()) / brought
    parent = sum(edge.effect for edge in graph.edges) / len(graph.edges)
    circuit = Circuit(
        kind="induction",
        heads=tuple(sorted({*_feeders(graph), *copiers})),
        edges=tuple(sorted(edges, key=str)),
        effects={"parent": parent, "match": match, "copy": brought},
        strength=strength,
        coverage=_coverage(graph),
        note=f"along a latent graph that layer 0 attends along: {describe(graph)}",
        parts=tuple((head, "induction") for head in sorted(copiers)),
    )
    return GraphInduction(circuit, graph)


def merged(circuits: tuple[Circuit, ...], found: GraphInduction | None) -> tuple[Circuit, ...]:
    """All circuits, strongest first; one circuit that was found both ways is listed once, as the
    stronger finding has it."""
    if found is None:
        return circuits
    own = found.circuit
    same = [c for c in circuits if c.kind in IN_CONTEXT and set(c.ends) & set(own.ends)]
    if any(c.strength >= min(own.strength, NEARLY) for c in same):
        return circuits
    kept = (own, *(c for c in circuits if c not in same))
    return tuple(sorted(kept, key=lambda c: -c.strength))


def graph_contexts(
    graph: CausalGraph, vocabulary: Int[Tensor, " vocab"], n: int, *, generator: torch.Generator
) -> tuple[Contexts, Bool[Tensor, "n node"]]:
    """Sequences that follow a graph, and which nodes are children whose parents show the query.

    Tokens stand in a random circle, a new one in every sequence; a child shows the token that
    stands as many steps on as its parents' places add up to, and one more. Roots are uniform.
    """
    k, nodes = graph.n_parents, graph.n_nodes
    size = min(len(vocabulary), nodes)
    place = torch.randint(size, (n, nodes + k), generator=generator)
    children = [node for node, parents in enumerate(graph.parents) if len(parents) == k]
    for child in children:
        place[:, child] = (place[:, list(graph.parents[child])].sum(1) + 1) % size
    pick = torch.randint(len(children), (n,), generator=generator)
    parents = torch.tensor([graph.parents[child] for child in children])
    rows = torch.arange(n)
    place[:, nodes:] = place[rows[:, None], parents[pick]]
    right = torch.zeros(n, nodes, dtype=torch.bool)
    right[:, children] = (place[:, parents] == place[:, None, nodes:]).all(-1)
    circle = torch.rand(n, len(vocabulary), generator=generator).argsort(1)[:, :size]
    tokens = vocabulary[circle.gather(1, place)]
    wanted = tokens[rows, torch.tensor(children)[pick]]
    last = torch.full((n,), nodes + k - 1)
    return Contexts(tokens, last, torch.full((n,), -1), wanted), right


def exchange_places(contexts: Contexts, nodes: int, *, generator: torch.Generator) -> Contexts:
    """The same contexts with the tokens of their nodes in a random order: no graph is left."""
    order = torch.rand(len(contexts), nodes, generator=generator).argsort(1)
    tokens = contexts.tokens.clone()
    tokens[:, :nodes] = tokens.gather(1, order)
    return replace(contexts, tokens=tokens)


def describe(graph: CausalGraph) -> str:
    """What kind of graph it is, in words."""
    backs = {edge.child - edge.parent for edge in graph.edges}
    shape = f"{_count(graph.edges, 'edge')}, {_count(graph.roots, 'root')}"
    if backs == {1} and len(graph.roots) == 1:
        return f"the chain, so an in-context Markov chain ({shape})"
    return f"{_count(range(graph.n_parents), 'parent')} a node ({shape})"


def _count(things: Sized, word: str) -> str:
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"


# -- parts ----------------------------------------------------------------------------------------


def _graph_of(probe: Probe) -> CausalGraph | None:
    """The graph on the positions before the query, where there is enough of one to ask."""
    weights = probe.weights
    length = min(weights.n_ctx, MAX_POSITIONS)
    if (
        not weights.learned_positions
        or not weights.same_vocabulary
        or weights.n_layers < 2
        or length <= FEWEST_NODES
        or len(probe.vocabulary) < FEWEST_TOKENS
    ):
        return None
    graph = recover_causal_graph(weights, nodes=length, seed=probe.seed)
    graph = graph.first(length - max(1, graph.n_parents))
    if len(backs := {edge.child - edge.parent for edge in graph.edges}) == 1 and backs != {1}:
        return None  # one distance for all: a skip circuit, which is looked for as such
    whole = [node for node, parents in enumerate(graph.parents) if len(parents) == graph.n_parents]
    return graph if graph.edges and len(whole) >= max(2, FEW * graph.n_nodes) else None


def _copiers(
    probe: Probe, full: Trace, control: Trace, contexts: Contexts, right: Tensor
) -> dict[HeadIndex, float]:
    """Later heads that gain attention to right children by the graph, with what they bring to the
    answer in nats; those that bring a tenth of the most."""
    margins = logit_margins(probe.weights, full, contexts, None)
    means: dict[Node, float] = {}
    for layer, head in probe.weights.heads:
        if layer > 0:
            seen, chance = (_at_last(t, (layer, head), right) for t in (full, control))
            if float((seen * right).sum(1).mean() - (chance * right).sum(1).mean()) > GAINS:
                means[(layer, head)] = float(margins[(layer, head)].mean())
    return {node: means[node] for node in leading(means) if not isinstance(node, str)}


def _at_last(trace: Trace, head: HeadIndex, right: Tensor) -> Float[Tensor, "n node"]:
    """A head's attention from the last position to the nodes."""
    return trace.attention[head[0]][:, head[1], -1, : right.shape[1]]


def _stands_out(trace: Trace, head: HeadIndex, right: Tensor) -> float:
    """Log-odds of a right child against another node, in nats."""
    logs = _at_last(trace, head, right).clamp(min=1e-12).log()
    return float(logs[right].mean() - logs[~right].mean())


def _share_right(weights: ModelWeights, trace: Trace, contexts: Contexts) -> float:
    return float(answers(weights, trace, contexts).mean())


def _feeders(graph: CausalGraph) -> set[HeadIndex]:
    return {(0, edge.head) for edge in graph.edges if edge.head is not None}


def _edges(graph: CausalGraph, copiers: Iterable[HeadIndex], ports: tuple[Port, ...]) -> set[Edge]:
    feeders = _feeders(graph)
    edges = {Edge(EMBED, head, port) for head in (*feeders, *copiers) for port in PORTS}
    edges |= {Edge(f, copier, port) for f in feeders for copier in copiers for port in ports}
    return edges | {Edge(copier, OUTPUT, "out") for copier in copiers}


def _coverage(graph: CausalGraph) -> Coverage:
    """The share of nodes with parents; node 0 can have none and is not counted."""
    missing = [node for node in graph.roots if node > 0]
    exceptions = (f"roots at {short(missing)}",) if missing else ()
    return Coverage(1 - len(missing) / (graph.n_nodes - 1), "positions", exceptions)
