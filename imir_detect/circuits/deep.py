"""Circuits of models whose paths are too many to sum, or whose MLPs are not read.

Heads are found by the attention that weights and extended embeddings predict, searched outward: who
looks one back, who looks where a token was before, who feeds the latter. Whether the answer comes
out is known from running the model on random contexts that repeat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex, Int
from imir_detect.circuits.attending import SIGNIFICANT, fixed_place_circuits
from imir_detect.circuits.attribution import leading
from imir_detect.circuits.core import BY_RUNNING, Circuit, Coverage, Kind
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import Probe, near_best
from imir_detect.circuits.relation import Relation
from imir_detect.coordinates.carried import Carried, carry
from imir_detect.coordinates.extended import Extended, Run, read_out
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, PORTS, Edge, Node
from imir_detect.frame.contexts import distinct_tokens, repeated_contexts
from imir_detect.linalg import DTYPE
from imir_detect.progress import bar
from imir_detect.weights.forward import by_head, finish, project, qk_factor
from imir_detect.weights.model import ModelWeights

# Averaging over contexts weakens predicted attention: a quarter of it names a head.
LOOKS = 0.1
CONTEXTS = 8


@dataclass(frozen=True)
class Deep:
    """What the circuits of a deep model are read from.

    - `extended`; `repeated` and `plain`: predicted attention on two periods of sampled tokens, and
      on the same first period followed by other tokens. `period` of the former.
    - `top` (n, pos): the token that the model, run on the repeated contexts, puts on top.
    """

    weights: ModelWeights
    extended: Extended
    repeated: Carried
    plain: Carried
    period: int
    top: Int[Tensor, "n pos"]

    @staticmethod
    def take(weights: ModelWeights, extended: Extended, run: Run, *, seed: int) -> Deep:
        generator = torch.Generator().manual_seed(seed + 1)
        size = len(extended.tokens)
        index, period = repeated_contexts(
            CONTEXTS, extended.context, torch.arange(size), generator=generator
        )
        plain = distinct_tokens(CONTEXTS, index.shape[1], torch.arange(size), generator=generator)
        found = []
        for rows in index.split(8):  # type: ignore[no-untyped-call]
            _, logits = run(extended.tokens[rows])
            found.append(logits.argmax(-1))
        return Deep(
            weights,
            extended,
            carry(weights, extended, index),
            carry(weights, extended, plain),
            period,
            torch.cat(found),
        )

    @property
    def queries(self) -> Int[Tensor, " query"]:
        """Places of the second period; its first one is left out, since what it repeats follows
        nothing."""
        return torch.arange(self.period + 1, self.repeated.index.shape[1])

    def right(self) -> Float[Tensor, "n query"]:
        """Whether the model puts the next token on top, at all queries that have one."""
        at = self.queries[:-1]
        return (self.top[:, at] == self.extended.tokens[self.repeated.index[:, at + 1]]).to(DTYPE)

    def patterns(self) -> Patterns[Carried]:
        """The predicted attention, for what looks at patterns only."""
        return Patterns(self.plain, self.repeated, self.period)

    def lift(self, head: HeadIndex, offset: int) -> float:
        """Predicted attention to `offset` after the earlier copy, over that of the same places
        where nothing repeats."""
        layer, index = head
        key = self.queries - self.period + offset
        on = self.repeated.attention[layer][:, index][:, self.queries, key]
        off = self.plain.attention[layer][:, index][:, self.queries, key]
        return float(on.mean() - off.mean())


def deep_circuits(probe: Probe, deep: Deep, relation: Relation) -> tuple[Circuit, ...]:
    """Every circuit found, strongest first."""
    found = _fixed_places(probe, deep)
    found += _matching(deep)
    if relation.coverage > 0:
        found.append(_in_weights(deep, relation))
    return tuple(sorted(found, key=lambda c: -c.strength))


def _fixed_places(probe: Probe, deep: Deep) -> list[Circuit]:
    """Heads that attend to a fixed place; all that rest on position 0 as one circuit."""
    found = fixed_place_circuits(probe, deep.patterns())
    resting = [c for c in found if c.kind == "position_sink"]
    kept = [c for c in found if c.kind != "position_sink"]
    if resting:
        heads = tuple(sorted(head for c in resting for head in c.heads))
        kept.append(
            Circuit(
                kind="position_sink",
                heads=heads,
                edges=tuple(edge for c in resting for edge in c.edges),
                effects={},
                strength=sum(c.strength for c in resting) / len(resting),
                coverage=Coverage(1.0, "positions"),
                note=f"{len(heads)} heads that rest on position 0",
            )
        )
    return kept


def _matching(deep: Deep) -> list[Circuit]:
    """Heads that look where a token was before: at the copy itself, or at what followed it; the
    latter copy what they see (one circuit, with their feeders), push it down, or neither."""
    found: list[Circuit] = []
    copiers: dict[HeadIndex, float] = {}
    for head in deep.weights.heads:
        same, behind = deep.lift(head, 0), deep.lift(head, 1)
        if same > max(LOOKS, behind):
            found.append(_single("duplicate_token", head, {}, same, "attends to the earlier copy"))
        elif behind > LOOKS:
            margin, z = _copies(deep, head)
            if abs(z) < SIGNIFICANT:
                note = "attends like an induction head and copies nothing to the logits directly"
                found.append(_single("prefix_match", head, {}, behind, note))
            elif z > 0:
                copiers[head] = margin
            else:
                note = "attends like an induction head and pushes the attended token down"
                found.append(_single("suppression", head, {"copy": margin}, behind, note))
    if copiers:
        found.append(_induction(deep, copiers))
    return found


def _single(
    kind: Kind, head: HeadIndex, effects: dict[str, float], strength: float, note: str
) -> Circuit:
    return Circuit(
        kind=kind,
        heads=(head,),
        edges=tuple(Edge(EMBED, head, port) for port in PORTS),
        effects=effects,
        strength=min(1.0, max(0.0, strength)),
        coverage=Coverage(1.0, "positions"),
        note=f"{note}; attention predicted from extended embeddings",
    )


def _copies(deep: Deep, head: HeadIndex) -> tuple[float, float]:
    """Nats by which the head's output-value map raises the token it attends to over the other
    sampled ones, at its predicted attention, and their z over tokens; 0 and 0 where output tokens
    are not input tokens."""
    w, extended = deep.weights, deep.extended
    if not w.same_vocabulary:
        return 0.0, 0.0
    A, B = read_out(w, extended, head)
    logits = A @ B.T
    own = logits.diagonal() - (logits.sum(1) - logits.diagonal()) / max(1, len(logits) - 1)
    error = float(own.std()) / math.sqrt(len(own))
    return float(own.mean()) * deep.lift(head, 1), float(own.mean()) / max(error, 1e-12)


def _induction(deep: Deep, copiers: dict[HeadIndex, float]) -> Circuit:
    feeders: dict[HeadIndex, dict[Node, float]] = {h: {} for h in copiers}
    shares = _key_terms(deep, tuple(copiers))
    edges = {Edge(head, OUTPUT, "out") for head in copiers}
    for head in copiers:
        feeders[head] = shares[head]
        edges |= {Edge(node, head, "K") for node in leading(shares[head])}
    heads = sorted({n for e in edges for n in (e.source, e.target) if not isinstance(n, str)})
    edges |= {Edge(EMBED, head, port) for head in heads for port in PORTS}
    right = deep.right()
    place = torch.arange(right.shape[1]).expand_as(right).flatten()
    held = near_best(
        right.flatten(), place, torch.ones_like(place, dtype=torch.bool), right.shape[1]
    )
    # Feeders have the role that their own attention gives them, if any.
    parts = tuple((head, "induction") for head in copiers)
    match = max(sum(max(0.0, v) for v in terms.values()) for terms in shares.values())
    named, rest = _searched(shares)
    return Circuit(
        kind="induction",
        heads=tuple(heads),
        edges=tuple(sorted(edges, key=str)),
        effects={"match": match, "copy": sum(copiers.values())},
        strength=float(right.mean()),
        coverage=Coverage(float(held.double().mean()), "positions"),
        note=(
            f"{BY_RUNNING}; heads are those whose predicted attention exceeds {LOOKS}, feeders "
            f"bring a tenth of the key's match, {named:.0%} of it together; the largest that is "
            f"not named brings {rest:.1f} nats to any of them"
        ),
        parts=parts,
    )


def _searched(shares: dict[HeadIndex, dict[Node, float]]) -> tuple[float, float]:
    """Share of the key's match, over all heads fed, that the feeders named bring; and the most that
    one not named brings to any of them, in nats."""
    named = total = rest = 0.0
    for terms in shares.values():
        kept = leading(terms)
        total += sum(max(0.0, v) for v in terms.values())
        named += sum(max(0.0, terms[node]) for node in kept)
        rest = max([rest, *(v for node, v in terms.items() if node not in kept)])
    return (named / total if total > 0 else 0.0), rest


def _key_terms(deep: Deep, targets: tuple[HeadIndex, ...]) -> dict[HeadIndex, dict[Node, float]]:
    """Nats that every earlier head brings to the score between a query and the key behind the
    earlier copy, over what it brings to the mean key: sum over what it predicts to attend to."""
    w, extended, carried = deep.weights, deep.extended, deep.repeated
    wanted = deep.queries - deep.period + 1
    wishes = {head: _wished_key(deep, head, wanted) for head in targets}
    terms: dict[HeadIndex, dict[Node, float]] = {head: {} for head in targets}
    for earlier in bar(range(max((layer for layer, _ in targets), default=0)), what="feeders"):
        offered = by_head(carried.deviation[earlier], w.W_V[earlier])
        z = carried.attention[earlier] @ offered
        z = z[:, :, wanted] - z.mean(2, keepdim=True)
        for head in range(w.n_heads):
            written = z[:, head] @ w.W_O[earlier, head]
            for target in targets:
                if target[0] > earlier:
                    read = written / extended.rms[target[0]][wanted]
                    terms[target][(earlier, head)] = float((wishes[target] * read).sum(-1).mean())
    return terms


def _wished_key(
    deep: Deep, head: HeadIndex, wanted: Int[Tensor, " query"]
) -> Float[Tensor, "n query d_model"]:
    """The direction of the residual, at the wanted key of every query, that raises its score."""
    w, (layer, index) = deep.weights, head
    kind = w.attention[layer]
    length = deep.repeated.index.shape[1]
    rows = deep.extended.place[layer][:length] + deep.repeated.deviation[layer]
    q, k = project(w, layer, "Q", rows), project(w, layer, "K", rows)
    query = finish(w, layer, "Q", q, qk_factor(w, layer, q))[:, index, deep.queries]
    if kind.rotary is not None:  # instead of turning keys forward
        query = kind.rotary.rotate(query, -wanted)
    factor = qk_factor(w, layer, k)
    if kind.qk_norm is not None and factor is not None:
        query = query * kind.qk_norm.key_gain[index] * factor[:, index, wanted]
    return query @ w.W_K[layer, index].T


def _in_weights(deep: Deep, relation: Relation) -> Circuit:
    """How often the model puts a named token's partner on top where nothing repeats yet, on
    contexts that R was not estimated from."""
    extended = deep.extended
    token = deep.repeated.index[:, 1 : deep.period - 1].flatten()
    top = deep.top[:, 1 : deep.period - 1].flatten()
    partner = relation.partner[extended.tokens[token]]
    asked = partner >= 0
    right = (top == partner)[asked].to(DTYPE)
    per_token = torch.zeros(len(extended.tokens), dtype=DTYPE).index_add_(0, token[asked], right)
    count = torch.bincount(token[asked], minlength=len(extended.tokens))
    held = (per_token > 0.5 * count)[count > 0]
    return Circuit(
        kind="in_weights",
        heads=(),
        edges=(Edge(EMBED, OUTPUT, "out"),),
        effects={"associate": float(relation.margin[relation.named].mean())}
        if relation.margin is not None
        else {},
        strength=float(right.mean()) if len(right) else 0.0,
        coverage=Coverage(float(held.double().mean()) if len(held) else 0.0, "tokens"),
        note=(
            f"{BY_RUNNING}; R estimated from the extended read-out, a probe and not a reading of "
            f"weights: {len(relation.named)} of {len(extended.tokens)} sampled tokens; what holds "
            "it was not looked at"
        ),
    )
