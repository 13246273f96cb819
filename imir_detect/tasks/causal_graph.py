"""Random sequences with a latent causal graph on their positions.

Source: Nichani, Damian and Lee, *How Transformers Learn Causal Structure with Gradient Descent*
(ICML 2024, arXiv 2402.14735), section 2.
The graph is the same in every sequence, the transition matrix never is: a model must learn the
graph in its weights and estimate the matrix in context.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.arguments import shown
from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE
from imir_detect.tasks.base import IGNORE, Axis, Batch, Ceiling
from imir_detect.tasks.checks import Rule, require, right_types
from imir_detect.tasks.latent_graph import LatentGraph, chain
from imir_detect.tasks.row_priors import Dirichlet, RowPrior, stationary_law


@dataclass(frozen=True)
class GraphSample:
    """Sequences with the transition matrices that made them.

    - `tokens` (batch, pos): nodes of the graph, then the k query tokens.
    - `transitions` (batch, symbols**k, symbols): row of every combination of parent values, the
      first parent counting most.
    - `rows` (batch, symbols): the target, the row of the query.
    """

    tokens: Int[Tensor, "batch pos"]
    transitions: Float[Tensor, "batch combination symbols"]
    rows: Float[Tensor, "batch symbols"]


@dataclass(frozen=True)
class CausalGraphTask:
    """In-context estimation of a transition matrix along a latent graph.

    Every sequence draws a new matrix pi from `prior`; roots draw from pi's stationary law,
    other nodes from pi(. | their parents' values); then come k query tokens, uniform, and the
    target is the row pi(. | query). T = nodes + k tokens. With k > 1 parents no stationary law is
    at hand and roots are uniform (our choice). `sample` gives a draw from the target row as the
    target, `draw` the whole row.

    >>> task = CausalGraphTask(chain(3), n_symbols=2)
    >>> task.length, task.sample(5, generator=torch.Generator().manual_seed(0)).tokens.shape
    (4, torch.Size([5, 4]))
    """

    graph: LatentGraph = field(default_factory=lambda: chain(19))
    n_symbols: int = 3
    prior: RowPrior = field(default_factory=Dirichlet)

    name = "causal_graph"
    relation = None

    def __post_init__(self) -> None:
        rules = [
            Rule(
                isinstance(self.graph, LatentGraph),
                f"graph={shown(self.graph)}",
                "a LatentGraph",
                "make one with chain(n), or LatentGraph.from_edges",
            ),
            Rule(
                callable(getattr(self.prior, "sample", None)),
                f"prior={shown(self.prior)}",
                "a law of rows such as Dirichlet()",
                "use one of tasks.row_priors",
            ),
        ]
        require(self.name, [*right_types(self), *rules])
        if self.n_symbols < 2:
            raise InvalidArgumentError(
                "a transition needs symbols",
                got=f"n_symbols={self.n_symbols}",
                wanted="at least 2",
                todo="raise n_symbols",
            )

    @property
    def vocab_size(self) -> int:
        return self.n_symbols

    @property
    def n_queries(self) -> int:
        """k: query tokens at the end, as many as a node has parents."""
        return self.graph.n_parents

    @property
    def length(self) -> int:
        return len(self.graph) + self.n_queries

    @property
    def n_positions(self) -> int:
        return self.length

    @property
    def competitors(self) -> int:
        return self.length

    def draw(self, n: int, *, generator: torch.Generator) -> GraphSample:
        """`n` sequences with their matrices and target rows."""
        symbols, k = self.n_symbols, self.n_queries
        transitions = self.prior.sample((n, symbols**k), symbols, generator=generator)
        tokens = torch.empty(n, self.length, dtype=torch.long)
        tokens[:, -k:] = torch.randint(symbols, (n, k), generator=generator)
        uniform = torch.rand(n, len(self.graph), generator=generator, dtype=DTYPE)
        at_root = (
            stationary_law(transitions)
            if k == 1
            else torch.full((n, symbols), 1 / symbols, dtype=DTYPE)
        ).cumsum(-1)
        below = transitions.cumsum(-1)
        every = torch.arange(n)
        for node, parents in enumerate(self.graph.parents):
            law = below[every, self._combine(tokens[:, list(parents)])] if parents else at_root
            drawn = (uniform[:, node, None] > law).sum(-1)
            tokens[:, node] = drawn.clamp(max=symbols - 1)
        rows = transitions[every, self._combine(tokens[:, -k:])]
        return GraphSample(tokens, transitions, rows)

    def sample(self, n: int, *, generator: torch.Generator) -> Batch:
        """`n` sequences; the last position is asked for one draw from the target row."""
        drawn = self.draw(n, generator=generator)
        return self._ask(drawn.tokens, drawn.rows, generator=generator)

    def probe(self, axis: Axis, n: int, *, generator: torch.Generator) -> Batch | None:
        """None: the answer is a draw from a law, so no accuracy says whether a circuit works."""
        return None

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """Clean sequences, and the same ones with another last token and a target of its row."""
        drawn = self.draw(n, generator=generator)
        clean = self._ask(drawn.tokens, drawn.rows, generator=generator)
        tokens = drawn.tokens.clone()
        step = torch.randint(1, self.n_symbols, (n,), generator=generator)
        tokens[:, -1] = (tokens[:, -1] + step) % self.n_symbols
        query = self._combine(tokens[:, -self.n_queries :])
        rows = drawn.transitions[torch.arange(n), query]
        return clean, self._ask(tokens, rows, generator=generator)

    def ceiling(self) -> Ceiling:
        """No closed form; `near_bayes` of `causal_predictors` gives one for a sample."""
        return Ceiling(None, None, None, None, None, None)

    def _combine(self, values: Int[Tensor, "batch k"]) -> Int[Tensor, " batch"]:
        """Index of a combination of parent values, the first counting most."""
        index = torch.zeros(values.shape[0], dtype=torch.long)
        for column in values.unbind(-1):
            index = index * self.n_symbols + column
        return index

    def _ask(self, tokens: Tensor, rows: Tensor, *, generator: torch.Generator) -> Batch:
        targets = torch.full_like(tokens, IGNORE)
        targets[:, -1] = torch.multinomial(rows, 1, generator=generator)[:, 0]
        answer = torch.full_like(tokens, -1)
        answer[:, -1] = self._last_example(tokens, targets[:, -1])
        return Batch(tokens, targets, answer)

    def _last_example(self, tokens: Tensor, target: Tensor) -> Tensor:
        """Last child that shows the target below the query's values; -1 where none does."""
        children = list(self.graph.children)
        if not children:
            return torch.full_like(target, -1)
        shows = matches_query(self.graph, tokens) & (tokens[:, children] == target[:, None])
        place = torch.where(shows, torch.tensor(children), torch.tensor(-1))
        return place.max(-1).values


def matches_query(graph: LatentGraph, tokens: Int[Tensor, "batch pos"]) -> Tensor:
    """(batch, children): whether a child's parents show the values of the query tokens."""
    parents = torch.tensor([graph.parents[child] for child in graph.children])
    return (tokens[:, parents] == tokens[:, None, -graph.n_parents :]).all(-1)
