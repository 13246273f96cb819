"""What a model measurably does: its task accuracies, and what ablating a circuit's heads costs.

Measurement stands beside prediction in the report and never enters it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from imir_detect.arguments import check_seed, shown, whole
from imir_detect.circuits.core import Circuit
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import Relation
from imir_detect.coordinates.pathsum import name_of, sum_paths
from imir_detect.edge_check import check_edges
from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.contexts import Contexts, asking_contexts
from imir_detect.frame.lookups import INDUCTION, matching_contexts
from imir_detect.result import Table
from imir_detect.tasks import Task, measure
from imir_detect.verification import Asked, check_heads, repeated_questions
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.run import run_hooks, run_logits
from imir_detect.weights.unwrap import unwrap

LEAST_STRENGTH = 0.1  # of circuits that are worth ablating
REPEATED = 32  # contexts of repeated random tokens


def task_behaviour(
    model: Any, weights: ModelWeights, task: Task | None, *, seed: int
) -> dict[str, Any]:
    """`measure` of the model on the task; {} without one. Bare ModelWeights are run by summing
    their paths, which needs consecutive positions."""
    if task is None:
        return {}

    def logits(tokens: Tensor, positions: Tensor | None) -> Tensor:
        if not isinstance(model, ModelWeights):
            return run_logits(model, tokens, positions)
        if positions is not None:
            raise InvalidArgumentError(
                "bare weights are run on consecutive positions only",
                got="a task with random offsets",
                todo="pass the model itself, or a task with offsets='consecutive'",
            )
        return sum_paths(weights, tokens).final @ weights.W_U + weights.b_U

    return dict(measure(task, logits, seed=seed))


@dataclass(frozen=True)
class Attended:
    """One head's attention on repeated random tokens, measured: means over contexts and queries."""

    layer: int
    head: int
    previous_token: float
    duplicate_token: float
    induction: float


def repeated_attention(model: Any, *, contexts: int = 8, period: int = 64, seed: int = 0) -> Table:
    """Attention of every head on two periods of random tokens, from the model's own patterns.

    Mean attention to i - 1 over i > 1; to the earlier copy and to the token after it over the
    second period less its first place (whose earlier copy follows nothing). Olsson et al. (2022)
    call the last prefix matching. The period is cut to half the model's context. In [0, 1]; columns
    as in `Report.heads`. Raises InvalidArgumentError where the model shows no patterns.

    >>> from imir_detect import shipped_model
    >>> repeated_attention(shipped_model("icl")).columns[:2]
    ('layer', 'head')
    """
    model = unwrap(model)
    if not hasattr(model, "run_with_cache"):
        raise InvalidArgumentError(
            "attention is measured by running the model",
            got=f"a {type(model).__name__}",
            wanted="a TransformerLens model",
            todo="pass the model itself",
        )
    seed = check_seed(seed)
    for name, value, least in (("contexts", contexts, 1), ("period", period, 2)):
        if (whole(value) or 0) < least:
            raise InvalidArgumentError(
                f"{name} does not fit",
                got=f"{name}={shown(value)}",
                wanted=f"a whole number of {least} or more",
                todo="leave it out for the default",
            )
    cfg = model.cfg
    period = max(2, min(period, int(cfg.n_ctx) // 2))
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(int(cfg.d_vocab), (contexts, period), generator=generator)
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(int(cfg.n_layers))]
    _, patterns = run_hooks(model, torch.cat([tokens, tokens], 1), names)
    rows = []
    back = torch.arange(2, 2 * period)
    second = torch.arange(period + 1, 2 * period)
    for layer, name in enumerate(names):
        if name not in patterns:
            raise InvalidArgumentError(
                "this model shows no attention patterns",
                got=f"nothing at {name}",
                todo='load it with attn_implementation="eager"',
            )
        seen = patterns[name].mean(0)
        for head in range(seen.shape[0]):
            rows.append(
                Attended(
                    layer,
                    head,
                    float(seen[head, back, back - 1].mean()),
                    float(seen[head, second, second - period].mean()),
                    float(seen[head, second, second - period + 1].mean()),
                )
            )
    return Table.of(Attended, rows)


def ablation_check(
    model: Any, probe: Probe, circuits: tuple[Circuit, ...], relation: Relation
) -> dict[str, Any]:
    """What ablating each answering circuit costs the model (`check_heads`, `check_edges`).

    Induction is asked on repeated random tokens, two periods or more, from the tokens of the
    analysis; other lookups, and R, on random contexts that ask for them. All places are asked, not
    only those of the coverage, so that "intact" can lie below the circuit's strength.
    """
    if isinstance(model, ModelWeights):
        raise InvalidArgumentError(
            "ablation needs a model that runs",
            got="ModelWeights",
            wanted="a TransformerBridge",
            todo="pass the model itself, or leave verify out",
        )
    weights = probe.weights
    result: dict[str, Any] = {}
    for circuit in circuits:  # strongest first; of several of one kind, the strongest
        answers = circuit.in_context or circuit.kind == "in_weights"
        if not answers or circuit.strength < LEAST_STRENGTH or circuit.kind in result:
            continue
        generator = probe.generator(5)
        if circuit.kind == "induction":
            asked = repeated_questions(
                probe.vocabulary, probe.context, REPEATED, generator=generator
            )
        else:
            contexts = _contexts(probe, circuit, relation)
            asked = Asked(
                contexts.tokens,
                contexts.rows,
                contexts.query,
                contexts.wanted,
                f"{len(contexts)} random contexts with one question each",
            )
        others = [h for h in weights.heads if h not in circuit.heads]
        checked = check_heads(model, asked, circuit.heads, others, generator=generator)
        edges: dict[str, Any] = {}
        if circuit.kind == "induction":
            edges = check_edges(model, weights, asked, circuit, generator=generator)
            checked["forward_passes"] += edges.pop("forward_passes")
        result[circuit.kind] = {"heads": [name_of(h) for h in circuit.heads], **checked, **edges}
    return result


def _contexts(probe: Probe, circuit: Circuit, relation: Relation) -> Contexts:
    generator = probe.generator(6)
    if circuit.kind != "in_weights":
        return matching_contexts(
            probe.samples,
            probe.context,
            probe.vocabulary,
            circuit.lookup or INDUCTION,
            generator=generator,
        )
    named = relation.named
    queries = named[torch.randint(len(named), (probe.samples,), generator=generator)]
    return asking_contexts(
        queries, relation.partner[queries], probe.context, probe.vocabulary, generator=generator
    )
