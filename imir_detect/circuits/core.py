"""What a circuit is: kind, heads, edges, effects, strength, coverage."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex, Int
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, Edge, name_of
from imir_detect.errors import ImirError, InvalidArgumentError
from imir_detect.frame.lookups import Lookup
from imir_detect.weights.ablation import Hook, mean_ablation_hooks
from imir_detect.weights.run import run_hooks
from imir_detect.weights.unwrap import unwrap

Kind = Literal[
    "induction",
    "induction_long_prefix",
    "pointer_induction",
    "skip",
    "k_hop",
    "in_weights",
    "duplicate_token",
    "previous_token",
    "offset",
    "prefix_match",
    "suppression",
    "backward_retrieval",
    "position_sink",
]
# Kinds that answer from the context, and so count for the label "icl".
IN_CONTEXT: tuple[Kind, ...] = (
    "induction",
    "induction_long_prefix",
    "pointer_induction",
    "k_hop",
    "backward_retrieval",
)
BY_RUNNING = "strength is the share that the model, run on random contexts, gets right"
MOST_NAMED = 12  # heads that a line names
WORKS = 0.5  # a circuit works when its strength exceeds this


def short(places: list[int], most: int = 8) -> str:
    """A list of numbers, cut where it gets long."""
    text = ", ".join(map(str, places[:most]))
    return text + (f", ... ({len(places)} in all)" if len(places) > most else "")


@dataclass(frozen=True)
class Coverage:
    """The share of tokens or positions that a circuit holds for, and the exceptions.

    - share: in [0, 1]. of: "positions" (places of the copy and of the query) or "tokens".
    - exceptions: where it does not hold, in words.

    >>> print(Coverage(0.75, "tokens", ("tokens 3, 9",)))
    75% of tokens (not: tokens 3, 9)
    """

    share: float
    of: Literal["positions", "tokens"]
    exceptions: tuple[str, ...] = ()

    def __float__(self) -> float:
        return self.share

    def __str__(self) -> str:
        text = f"{self.share:.0%} of {self.of}"
        return f"{text} (not: {'; '.join(self.exceptions)})" if self.exceptions else text


@dataclass(frozen=True)
class Circuit:
    """A named circuit.

    - `heads`: every head of it, feeders included, in order. `edges`: (source, target, port).
    - `effects`: {unit: nats}, such as {"shift": 4.0, "match": 8.0, "copy": 8.5}.
    - `strength`: predicted share of inputs, within the coverage, on which the circuit by itself
      gives the right answer; for kinds that give none, predicted mean attention. In [0, 1].
    - `parts`: what single heads do in it, (head, role), where a circuit's kind does not say; heads
      that help in another way are left out.
    - `hops`: how many matches follow each other; more than one for `k_hop` only.
    - `lookup`: the question that a circuit answers from the context; not stored with a report.
    - `note`: what the kind and the numbers do not say.

    Raises ImirError for a strength or a share outside [0, 1], and for edges of heads not listed.

    >>> edges = (Edge("embed", (0, 1), "K"), Edge("embed", (0, 1), "Q"))
    >>> found = Circuit("previous_token", ((0, 1),), edges, {}, 0.9, Coverage(1.0, "positions"))
    >>> found.names, found.works
    (('L0H1',), True)
    """

    kind: Kind
    heads: tuple[HeadIndex, ...]
    edges: tuple[Edge, ...]
    effects: dict[str, float]
    strength: float
    coverage: Coverage
    note: str = field(default="", compare=False)
    parts: tuple[tuple[HeadIndex, str], ...] = field(default=(), compare=False)
    hops: int = 1
    lookup: Lookup | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        ends = {n for e in self.edges for n in (e.source, e.target) if not isinstance(n, str)}
        if not 0 <= self.strength <= 1 or not 0 <= self.coverage.share <= 1:
            raise ImirError(
                "a circuit's strength and coverage are shares",
                got=f"{self.strength}, {self.coverage.share}",
                wanted="values in [0, 1]",
                todo="report this as a bug",
            )
        if not ends <= set(self.heads):
            raise ImirError(
                "a circuit's edges name heads that it does not list",
                got=str(sorted(ends - set(self.heads))),
                wanted=f"heads among {self.heads}",
                todo="report this as a bug",
            )

    @property
    def ends(self) -> tuple[HeadIndex, ...]:
        """The heads that no other head of the circuit reads."""
        read = {e.source for e in self.edges if e.target != OUTPUT}
        return tuple(head for head in self.heads if head not in read)

    @property
    def in_context(self) -> bool:
        """Whether it counts for the label "icl": it says what stands behind an earlier copy or, at
        a separator, what the model's sequences ask for there. Plain skips say another token."""
        lagged = self.lookup is not None and self.lookup.lag > 0
        return self.kind in IN_CONTEXT or lagged

    @property
    def works(self) -> bool:
        """Whether the strength exceeds one half."""
        return self.strength > WORKS

    def hooks(self, n_heads: int | None = None) -> list[Hook]:
        """The circuit's heads mean-ablated over the batch, for `model.run_with_hooks(tokens,
        fwd_hooks=circuit.hooks())`. Give `n_heads` for a model with one axis for all heads."""
        return mean_ablation_hooks(self.heads, n_heads)

    @contextmanager
    def ablate(self, model: Any) -> Iterator[Any]:
        """The model with the circuit's heads mean-ablated over each batch that it is given.

        Outside the block the model is as it was, hooks of your own included. A batch of one
        sequence raises InvalidArgumentError: its mean is itself.

        >>> from imir_detect import detect_circuits, shipped_model
        >>> model = shipped_model("icl")
        >>> circuit = detect_circuits(model).circuits[0]
        >>> with circuit.ablate(model):
        ...     logits = model(tokens)  # doctest: +SKIP
        """
        inner = unwrap(model)
        if not hasattr(inner, "hooks"):
            raise InvalidArgumentError(
                "ablation needs a model that runs",
                got=type(model).__name__,
                wanted="a TransformerLens model",
                todo="pass the model that was analysed",
            )
        with inner.hooks(fwd_hooks=self.hooks(inner.cfg.n_heads)):
            yield model

    @property
    def names(self) -> tuple[str, ...]:
        """The heads as words, "L1H0" and so on, in order."""
        return tuple(map(name_of, self.heads))

    def patterns(
        self, model: Any, tokens: Int[Tensor, " pos"] | Sequence[int]
    ) -> Float[Tensor, "head pos pos"]:
        """Attention of the circuit's heads on one sequence, from the model's own run.

        In the order of `names`; rows are queries, columns keys, in [0, 1], float32: what
        `circuitsvis.attention.attention_heads(attention=patterns, tokens=words,
        attention_head_names=list(circuit.names))` draws.

        Raises InvalidArgumentError for more than one sequence, for a model that does not run, and
        for one that shows no patterns.

        >>> from imir_detect import detect_circuits, shipped_model
        >>> model = shipped_model("icl")
        >>> detect_circuits(model).circuits[0].patterns(model, [3, 40, 5, 3]).shape
        torch.Size([4, 4, 4])
        """
        inner, ids = unwrap(model), torch.as_tensor(tokens)
        if ids.ndim != 1 or not hasattr(inner, "run_with_cache"):
            raise InvalidArgumentError(
                "patterns are those of a model that runs, on one sequence",
                got=f"{type(model).__name__}, tokens of shape {tuple(ids.shape)}",
                wanted="a TransformerLens model and a list of token ids",
                todo="pass tokens[0] of a batch, and the model that was analysed",
            )
        places = {layer: f"blocks.{layer}.attn.hook_pattern" for layer, _ in self.heads}
        _, seen = run_hooks(inner, ids[None], set(places.values()))
        lacking = sorted(set(places.values()) - set(seen))
        if lacking:
            raise InvalidArgumentError(
                "this model shows no attention patterns",
                got=f"nothing at {lacking[0]}",
                todo='load it with attn_implementation="eager"',
            )
        chosen = [seen[places[layer]][0, head] for layer, head in self.heads]
        return torch.stack(chosen).float() if chosen else torch.zeros(0, len(ids), len(ids))

    def brief(self) -> str:
        """The circuit in one line: kind, heads, strength, and where it holds, exceptions left out.

        >>> circuit = Circuit("offset", ((0, 1),), (), {}, 0.9, Coverage(0.5, "positions", ("0",)))
        >>> circuit.brief()
        'offset: L0H1; strength 0.90 at 50% of positions'
        """
        names = list(self.names)
        if len(names) > MOST_NAMED:
            names = [*names[:MOST_NAMED], f"{len(names) - MOST_NAMED} more heads"]
        text = f"{self.kind}: {', '.join(names) or 'direct path'}; strength {self.strength:.2f} "
        text += f"at {self.coverage.share:.0%} of {self.coverage.of}"
        effects = ", ".join(f"{unit} {nats:.1f}" for unit, nats in self.effects.items())
        text += f"; nats: {effects}" if effects else ""
        return f"{text}; {self.note}" if self.note else text

    def _repr_html_(self) -> str:
        edges = (str(edge) for edge in self.edges if edge.source != EMBED)
        said = html.escape(self.brief())
        return f"<p>{said}</p><p><small>{html.escape('; '.join(edges))}</small></p>"

    def __str__(self) -> str:
        heads = ", ".join(self.names) or "direct path"
        effects = ", ".join(f"{unit} {nats:.1f}" for unit, nats in self.effects.items())
        text = f"{self.kind}: {heads}; strength {self.strength:.2f}; {self.coverage}"
        text += f"; nats: {effects}" if effects else ""
        return f"{text}; {self.note}" if self.note else text
