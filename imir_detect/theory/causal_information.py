"""Chi-square mutual information between nodes of a latent graph: closed, and by enumeration."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.latent_graph import LatentGraph
from imir_detect.tasks.row_priors import stationary_law

MOST_SEQUENCES = 1_000_000


def chi_square_information(joint: Float[Tensor, "... a b"]) -> Float[Tensor, ...]:
    """sum_ab p(a, b)^2 / (p(a) p(b)) - 1: 0 when independent, at most min(sizes) - 1.

    >>> round(float(chi_square_information(torch.tensor([[0.5, 0.0], [0.0, 0.5]]))), 6)
    1.0
    """
    outer = joint.sum(-1, keepdim=True) * joint.sum(-2, keepdim=True)
    ratio = torch.where(outer > 0, joint.square() / outer, torch.zeros_like(joint))
    return ratio.sum((-1, -2)) - 1


def information_matrix(
    graph: LatentGraph, transitions: Float[Tensor, "batch symbols symbols"]
) -> Float[Tensor, "node node"]:
    """E_pi[I_chi2(x_i; x_j)] for a graph of single parents, exact for every pi given.

    All nodes follow the stationary law mu. With the last common ancestor d_i above i and d_j
    above j, the joint law is (pi^d_i)^T diag(mu) pi^d_j; nodes of different trees are independent.
    """
    _check_single(graph)
    mu = stationary_law(transitions)
    powers = [torch.eye(mu.shape[-1], dtype=DTYPE).expand_as(transitions)]
    for _ in range(len(graph)):
        powers.append(powers[-1] @ transitions)
    known: dict[tuple[int, int], float] = {}
    out = torch.zeros(len(graph), len(graph), dtype=DTYPE)
    above = [_ancestors(graph, node) for node in range(len(graph))]
    for i, j in itertools.product(range(len(graph)), repeat=2):
        common = [node for node in above[i] if node in above[j]]
        if not common:
            continue
        depths = (above[i].index(common[0]), above[j].index(common[0]))
        if depths not in known:
            joint = powers[depths[0]].transpose(1, 2) @ (mu[..., None] * powers[depths[1]])
            known[depths] = float(chi_square_information(joint).mean())
        out[i, j] = known[depths]
    return out


def enumerate_sequences(
    task: CausalGraphTask, transitions: Float[Tensor, "symbols symbols"]
) -> tuple[Int[Tensor, "sequence pos"], Float[Tensor, " sequence"]]:
    """Every sequence of the task with its probability, given one transition matrix; exact.

    Errors: InvalidArgumentError where there are more than a million.
    """
    _check_single(task.graph)
    symbols, length = task.n_symbols, task.length
    if symbols**length > MOST_SEQUENCES:
        raise InvalidArgumentError(
            "too many sequences to enumerate",
            got=f"{symbols}^{length}",
            wanted=f"at most {MOST_SEQUENCES}",
            todo="take fewer nodes or symbols, or sample",
        )
    tokens = torch.cartesian_prod(*[torch.arange(symbols)] * length).reshape(-1, length)
    mu = stationary_law(transitions[None])[0]
    chance = torch.full((len(tokens),), 1 / symbols, dtype=DTYPE)
    for node, parents in enumerate(task.graph.parents):
        value = tokens[:, node]
        chance = chance * (transitions[tokens[:, parents[0]], value] if parents else mu[value])
    return tokens, chance


def enumerated_information(
    task: CausalGraphTask, transitions: Float[Tensor, "symbols symbols"]
) -> Float[Tensor, "node node"]:
    """I_chi2(x_i; x_j) given one matrix, from all sequences: the slow oracle."""
    tokens, chance = enumerate_sequences(task, transitions)
    nodes = torch.nn.functional.one_hot(tokens[:, : len(task.graph)], task.n_symbols).to(DTYPE)
    return chi_square_information(torch.einsum("n,nia,njb->ijab", chance, nodes, nodes))


def estimated_information(
    task: CausalGraphTask, *, n: int = 4096, seed: int = 0
) -> Float[Tensor, "node node"]:
    """`information_matrix` over `n` matrices drawn from the task's prior."""
    shape = (n, task.n_symbols)
    generator = torch.Generator().manual_seed(seed)
    drawn = task.prior.sample(shape, task.n_symbols, generator=generator)
    return information_matrix(task.graph, drawn)


def _ancestors(graph: LatentGraph, node: int) -> list[int]:
    """The node itself, its parent, and so on up to a root."""
    path = [node]
    while graph.parents[path[-1]]:
        path.append(graph.parents[path[-1]][0])
    return path


def _check_single(graph: LatentGraph) -> None:
    if graph.n_parents != 1:
        raise InvalidArgumentError(
            "the information between nodes is closed for single parents only",
            got=f"{graph.n_parents} parents",
            wanted="a graph in which nodes have at most one parent",
            todo="use sampled sequences",
        )
