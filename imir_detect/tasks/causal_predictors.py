"""Two floors for the loss on a causal-graph task: near-Bayes, and the best two-layer circuit.

Both know the graph and estimate the matrix from one sequence; every loss is the cross-entropy, in
nats, of the target row pi(. | query) against the prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE
from imir_detect.tasks.causal_graph import CausalGraphTask, matches_query
from imir_detect.tasks.latent_graph import LatentGraph

Readout = Literal["softmax", "frequency"]


def row_loss(
    rows: Float[Tensor, "batch symbols"], predicted: Float[Tensor, "batch symbols"]
) -> float:
    """Mean cross-entropy of the rows against predicted probabilities, in nats.

    >>> round(row_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]])), 4)
    0.6931
    """
    return float(-torch.xlogy(rows, predicted.to(rows.dtype)).sum(-1).mean())


def query_counts(
    task: CausalGraphTask, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch symbols"]:
    """How often each symbol stands below parents that show the query's values."""
    if not task.graph.children:
        return torch.zeros(tokens.shape[0], task.n_symbols, dtype=DTYPE)
    seen = torch.nn.functional.one_hot(tokens[:, list(task.graph.children)], task.n_symbols)
    matching = matches_query(task.graph, tokens)
    return (seen * matching[..., None]).sum(1).to(DTYPE)


def near_bayes(
    task: CausalGraphTask, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch symbols"]:
    """Posterior mean of the target row from the children below the query's values.

    Under Dirichlet(alpha): (count + alpha) / (total + S alpha). It is Bayes' predictor but for
    what the roots, drawn from the stationary law, tell of pi, which it ignores.
    """
    return task.prior.posterior_mean(query_counts(task, tokens))


# -- the best two-layer circuit -------------------------------------------------------------------


@dataclass(frozen=True)
class TwoLayerCircuit:
    """Layer 0 attends to the true parents; layer 1 matches the query; the output copies.

    Rows of layer 0 without a parent (roots, and with one parent the query itself) are uniform
    over the positions so far. Layer 1 scores key i by `match` times the share of its layer-0
    attention that shows the query's values, plus `preference` where i has parents. With f the
    attended frequencies, the prediction is softmax(`scale` f) (readout "softmax", as in
    training) or (f + eps) / (1 + S eps) with eps = 1 / `scale` (readout "frequency", as in the
    source's theorem).
    """

    graph: LatentGraph
    n_symbols: int
    readout: Readout
    match: float
    preference: float
    scale: float

    def probabilities(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch symbols"]:
        knobs = torch.tensor([self.match, self.preference, self.scale], dtype=DTYPE)
        features = _features(self.graph, tokens, self.n_symbols)
        return _predict(*features, knobs, self.readout).exp()


def best_circuit(
    task: CausalGraphTask,
    *,
    readout: Readout = "softmax",
    n: int = 16384,
    seed: int = 0,
) -> TwoLayerCircuit:
    """The `TwoLayerCircuit` whose three numbers minimise the loss on `n` sequences.

    Evaluate it on sequences of another seed. L-BFGS in float64 from one start; the loss is smooth
    in the three numbers.
    """
    if readout not in ("softmax", "frequency"):
        raise InvalidArgumentError(
            "no such read-out",
            got=repr(readout),
            wanted="'softmax' or 'frequency'",
            todo="use one of them",
        )
    drawn = task.draw(n, generator=torch.Generator().manual_seed(seed))
    features = _features(task.graph, drawn.tokens, task.n_symbols)
    knobs = torch.tensor([3.0, 1.0, 2.0], dtype=DTYPE, requires_grad=True)  # scale as a logarithm
    optimiser = torch.optim.LBFGS([knobs], max_iter=80, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        natural = torch.cat([knobs[:2], knobs[2:].exp()])
        loss = -(drawn.rows * _predict(*features, natural, readout)).sum(-1).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    match, preference, log_scale = (float(x) for x in knobs.detach())
    scale = float(torch.tensor(log_scale, dtype=DTYPE).exp())
    return TwoLayerCircuit(task.graph, task.n_symbols, readout, match, preference, scale)


def true_attention(graph: LatentGraph) -> Float[Tensor, "k pos pos"]:
    """Layer 0 of the circuit: head m of row i attends to i's m-th parent.

    Other rows are uniform over the positions so far, except that with k > 1 the last row's head
    m attends to the m-th query token, so that layer 1 can read the whole query there.
    """
    k = graph.n_parents
    length = len(graph) + k
    uniform = torch.ones(length, length, dtype=DTYPE).tril()
    attention = (uniform / uniform.sum(-1, keepdim=True)).repeat(k, 1, 1)
    for child in graph.children:
        attention[:, child] = 0
        for head, parent in enumerate(graph.parents[child]):
            attention[head, child, parent] = 1
    if k > 1:
        attention[:, -1] = 0
        attention[torch.arange(k), -1, torch.arange(length - k, length)] = 1
    return attention


def _features(graph: LatentGraph, tokens: Tensor, symbols: int) -> tuple[Tensor, Tensor, Tensor]:
    """(matching share per key (batch, pos), has-parents per key (pos,), one-hot tokens)."""
    same = (tokens[:, :, None] == tokens[:, None, -graph.n_parents :]).to(DTYPE)
    share = torch.einsum("kij,bjk->bi", true_attention(graph), same) / graph.n_parents
    child = torch.zeros(tokens.shape[1], dtype=DTYPE)
    child[list(graph.children)] = 1
    return share, child, torch.nn.functional.one_hot(tokens, symbols).to(DTYPE)


def _predict(
    share: Tensor, child: Tensor, one_hot: Tensor, knobs: Tensor, readout: Readout
) -> Tensor:
    """Log-probabilities (batch, symbols)."""
    match, preference, scale = knobs
    attention = (match * share + preference * child).softmax(-1)
    frequency = torch.einsum("bi,bis->bs", attention, one_hot)
    if readout == "softmax":
        return (scale * frequency).log_softmax(-1)
    eps = 1 / scale
    return ((frequency + eps) / (1 + one_hot.shape[-1] * eps)).log()
