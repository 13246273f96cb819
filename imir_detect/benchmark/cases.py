"""A case: a model, a task, an ablation, what is scored, and the truth about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from imir_detect._typing import HeadIndex, Int
from imir_detect.benchmark.graph import PatchedModel, all_edges
from imir_detect.benchmark.prompts import Prompts, draw_prompts
from imir_detect.benchmark.units import UnitModel, all_units
from imir_detect.coordinates.pathsum import Edge
from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.lookups import INDUCTION, Lookup
from imir_detect.frame.names import Direction
from imir_detect.models.planted import PlantedSpec, build, relation_of
from imir_detect.models.planted_task import PlantedTask
from imir_detect.models.planted_truth import Ablation, Truth, truth_of
from imir_detect.tasks.base import Task
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.read import read_weights

Granularity = Literal["edge", "head", "unit"]
GRANULARITIES: tuple[Granularity, ...] = ("edge", "head", "unit")
Item = Edge | HeadIndex | Direction


@dataclass(frozen=True)
class Question:
    """Which behaviour a case is about, in the words of the circuit grammar; no data.

    - `kind`: "behind" (the token that `lookup` finds by an earlier copy of the query), "back" (the
      token `back` places before), "own" (the query's own token, which stood before), "first" (the
      token at place 0), "partner" (R of the query's token).
    - `asked`: query tokens that are asked, None for all. `sign` -1: the answer is pushed down.
    """

    kind: Literal["behind", "back", "own", "first", "partner"]
    back: int = 1
    relation: Int[Tensor, " vocab"] | None = field(default=None, compare=False)
    asked: int | None = None
    sign: int = 1
    lookup: Lookup = INDUCTION


@dataclass(frozen=True)
class Labels:
    """Which items count as right, which as wrong; what stands in neither is not scored.

    - `positive`, `negative`: disjoint. `circuits`: the minimal circuits as sets of edges.
    - `source`: "planted" (exact, by construction), "exhaustive" (every subset tried), "bracketed"
      (between certified edges), "control" (no circuit), or "labels" (given).
    """

    positive: frozenset[Item]
    negative: frozenset[Item]
    circuits: tuple[frozenset[Edge], ...] = ()
    source: str = "planted"

    @property
    def scorable(self) -> bool:
        """Whether ranks can be scored: something is right and something is wrong."""
        return bool(self.positive) and bool(self.negative)


@dataclass(frozen=True)
class Case:
    """What a method is given.

    `model`, `weights`, `task`, `question`, `ablation`, `granularity`; `items`: what to score, in
    order; `prompts(n, seed=)`: data of the task; `patched(n, seed=)` and `without_units(n, seed=)`:
    the model on it, with edges or with units to ablate. `labels` is None where a method runs: only
    the runner sees it.
    """

    name: str
    model_name: str
    model: Any = field(repr=False, compare=False)
    task: Task = field(repr=False)
    question: Question
    ablation: Ablation
    granularity: Granularity
    labels: Labels | None = field(default=None, repr=False)
    facts: dict[str, Any] = field(default_factory=dict, compare=False)

    @cached_property
    def weights(self) -> ModelWeights:
        """The model as plain folded weights."""
        return read_weights(self.model)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge of the model's graph."""
        return all_edges(self.weights.n_layers, self.weights.n_heads)

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """What is scored, in order: every edge, every head, or every unit of the frame."""
        if self.granularity == "unit":
            return all_units(self.weights, self.question.relation)
        return self.edges if self.granularity == "edge" else tuple(self.weights.heads)

    def prompts(self, n: int, *, seed: int = 0) -> Prompts:
        """n clean and corrupt sequences with their answers."""
        return draw_prompts(self.task, n, seed=seed, sign=self.question.sign)

    def patched(self, n: int, *, seed: int = 0) -> PatchedModel:
        """The model on n prompts, ready to have edges ablated."""
        return PatchedModel(self.weights, self.prompts(n, seed=seed), self.ablation)

    def without_units(self, n: int, *, seed: int = 0) -> UnitModel:
        """The model on n prompts, ready to have units taken out of its weights."""
        return UnitModel(self.weights, self.prompts(n, seed=seed), self.question.relation)

    def ablatable(self, n: int, *, seed: int = 0) -> PatchedModel | UnitModel:
        """`patched`, or `without_units` where units are scored."""
        units = self.granularity == "unit"
        return self.without_units(n, seed=seed) if units else self.patched(n, seed=seed)

    @cached_property
    def judge(self) -> PatchedModel | UnitModel:
        """The model on the prompts that circuits are judged on; no method draws them."""
        return self.ablatable(JUDGE_SAMPLES, seed=JUDGE_SEED)

    def blind(self) -> Case:
        """The same case without its labels: what a method sees. The weights are read once."""
        found = replace(self, labels=None)
        vars(found).update(weights=self.weights, items=self.items)
        return found

    def to_items(self, edges: Tensor) -> Tensor:
        """Edge scores (..., edge) as scores of the items: a head's is that of its best edge out.
        Scores of units stay as they are."""
        if self.granularity != "head":
            return edges
        places = {head: i for i, head in enumerate(self.weights.heads)}
        columns: list[list[int]] = [[] for _ in places]
        for index, edge in enumerate(self.edges):
            if not isinstance(edge.source, str):
                columns[places[edge.source]].append(index)
        return torch.stack([edges[..., column].amax(-1) for column in columns], -1)

    def mask_of(self, items: frozenset[Item]) -> Tensor:
        """What `ablatable` keeps when these items are kept: 1.0 or 0.0 an edge, or a unit. A head
        keeps every edge between kept nodes; the embedding and the output are always kept."""
        if self.granularity != "head":
            return torch.tensor([float(item in items) for item in self.items])
        kept = [
            (isinstance(e.source, str) or e.source in items)
            and (isinstance(e.target, str) or e.target in items)
            for e in self.edges
        ]
        return torch.tensor(kept, dtype=torch.float32)


def labels_of(
    truth: Truth, edges: tuple[Edge, ...], granularity: Granularity, *, source: str
) -> Labels:
    """Labels from minimal circuits.

    Planted: every edge that takes part is right; redundant parts are redundant by construction.
    Found by search: right is what stands in every minimal circuit, wrong what stands in none, and
    the rest, which some do without, is not scored.
    """
    right = truth.edges if source == "planted" else truth.necessary
    wrong = frozenset(edges) - truth.edges
    if granularity == "edge":
        return Labels(frozenset(right), wrong, truth.circuits, source)
    heads = frozenset(e.source for e in edges if not isinstance(e.source, str))
    found = [_heads(circuit) for circuit in truth.circuits]
    used = frozenset[Item]().union(*found)
    needed = used if source == "planted" else frozenset.intersection(*found) if found else used
    return Labels(needed, heads - used, truth.circuits, source)


def _heads(circuit: frozenset[Edge]) -> frozenset[Item]:
    """Heads that write something the circuit reads."""
    return frozenset(e.source for e in circuit if not isinstance(e.source, str))


def question_of(spec: PlantedSpec) -> Question:
    """The question that a planted circuit answers."""
    far = spec.back if spec.kind in ("skip", "offset") else 1
    if spec.kind in ("previous_token", "offset"):
        return Question("back", far)
    if spec.kind == "duplicate_token":
        return Question("own")
    if spec.kind == "position_sink":
        return Question("first")
    if spec.kind == "in_weights":
        return Question("partner", relation=relation_of(spec))
    lookup = {
        "induction_long_prefix": Lookup(prefix=2),
        "k_hop": Lookup(hops=2),
        "backward_retrieval": Lookup(-1),
    }.get(spec.kind, Lookup(far))
    sign = -1 if spec.kind == "suppression" else 1
    return Question("behind", lookup=lookup, asked=spec.triggers, sign=sign)


def planted_case(
    model_name: str, spec: PlantedSpec, ablation: Ablation, granularity: Granularity = "edge"
) -> Case:
    """A case with exact truth.

    Raises InvalidArgumentError for units under another ablation than zero.
    """
    if granularity == "unit" and ablation != "zero":
        raise InvalidArgumentError(
            "a unit is ablated by taking it out of the weights",
            got=f"{ablation} ablation of units",
            wanted="zero ablation",
            todo="score edges or heads under this ablation",
        )
    truth = truth_of(spec, ablation)
    case = Case(
        name=f"{model_name}/{ablation}/{granularity}",
        model_name=model_name,
        model=build(spec),
        task=PlantedTask(spec),
        question=question_of(spec),
        ablation=ablation,
        granularity=granularity,
        facts={"source": "planted", "kind": spec.kind},
    )
    if granularity == "unit":
        right = frozenset[Item](direction for _, direction in truth.units)
        labels = Labels(right, frozenset(case.items) - right)
    else:
        labels = labels_of(truth, case.edges, granularity, source="planted")
    return replace(case, labels=labels)


def searched_case(
    model_name: str,
    model: Any,
    task: Task,
    question: Question,
    ablation: Ablation,
    granularity: Granularity = "edge",
    *,
    search: Callable[[PatchedModel], Truth],
    source: str,
    samples: int = 64,
    facts: dict[str, Any] | None = None,
) -> Case:
    """A case whose truth is searched in the model itself, on prompts that no method sees.

    Raises InvalidArgumentError where the model does not do what is asked.
    """
    case = Case(
        name=f"{model_name}/{ablation}/{granularity}",
        model_name=model_name,
        model=model,
        task=task,
        question=question,
        ablation=ablation,
        granularity=granularity,
        facts=facts or {},
    )
    patched = case.patched(samples, seed=TRUTH_SEED)
    right = float(patched.prompts.right(patched.full_logits).double().mean())
    if right < ANSWERS:
        raise InvalidArgumentError(
            "the model does not do what the case asks",
            got=f"{right:.2f} right",
            wanted=f"at least {ANSWERS}",
            todo="ask for what the model does, or train it longer",
        )
    labels = labels_of(search(patched), case.edges, granularity, source=source)
    return replace(case, labels=labels)


JUDGE_SEED = 777_767
JUDGE_SAMPLES = 64
TRUTH_SEED = 999_983  # prompts of the search for truth; methods draw with small seeds
ANSWERS = 0.9
