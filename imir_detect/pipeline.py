"""`detect_circuits`: weights -> frame -> coordinates -> circuits -> report, one call a stage."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from imir_detect._typing import Int
from imir_detect.behaviour import ablation_check, task_behaviour
from imir_detect.circuits.heads import Head
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.verdict import features, label_probabilities, predicted_accuracy
from imir_detect.coordinates.profiles import Profile
from imir_detect.coordinates.table import Coordinate
from imir_detect.gate import admit
from imir_detect.notes import meta_of, warnings_of
from imir_detect.result import Report, Table
from imir_detect.routes import deep_route, exact_route, too_deep
from imir_detect.tasks import Task


def detect_circuits(
    model: Any,
    *,
    task: str | Task | None = None,
    relation: dict[int, int] | Int[Tensor, " vocab"] | None = None,
    context: int | None = None,
    verify: str | None = None,
    seed: int = 0,
) -> Report:
    """Which circuits a transformer holds, read from its weights.

    The weights' paths are summed on random contexts (no data, no task): a circuit's strength is
    the share of these on which it gives the right answer by itself and is not overruled by the
    rest of the model. See `Report` for what comes back.

    - model: a `TransformerBridge`, `HookedTransformer` or `ModelWeights`; it comes back untouched.
    - task: a registered name or a Task. Gives R, the vocabulary in use and the context length, and
      is run into `report.measured`. It never changes how label and probabilities are computed.
    - relation: {token: partner}, or a tensor (vocab,) with -1 for none; overrides the task's.
      Without either, R is estimated from the weights.
    - context: positions that compete for attention, 3 or more; default min(n_ctx, 64), and never
      more than the vocabulary in use, whose tokens must differ within a context.
    - verify: None, or "ablate": run the model on repeated random tokens with each answering
      circuit's heads ablated, by the mean and resampled, and with its edges ablated, beside as many
      random heads; with intervals, into `report.measured["ablation"]`.
    - seed: of every draw.

    Raises an ImirError that names everything that does not fit, model and arguments together.

    >>> from imir_detect import detect_circuits, shipped_model
    >>> detect_circuits(shipped_model("icl")).label
    'icl'
    """
    question = admit(model, task=task, relation=relation, context=context, verify=verify, seed=seed)
    weights = question.weights
    probe = Probe(weights, question.vocabulary, question.context, seed=question.seed)
    route = deep_route if too_deep(weights, probe.context) else exact_route
    found = route(model, probe, question.relation)
    answered = (found.circuits, found.wins, found.by_match)
    measured = task_behaviour(model, weights, question.task, seed=question.seed)
    if verify == "ablate":
        measured["ablation"] = ablation_check(model, found.probe, found.circuits, found.relation)
    return Report(
        probabilities=label_probabilities(*answered),
        circuits=found.circuits,
        heads=Table.of(Head, found.heads),
        coordinates=Table.of(Coordinate, found.coordinates),
        profiles=Table.of(Profile, found.profiles),
        measured=measured,
        limits=found.limits,
        warnings=warnings_of(probe, found.relation),
        meta={
            **meta_of(probe, found.relation, model),
            "route": found.route,
            "features": features(*answered),
            "predicted_accuracy": predicted_accuracy(*answered),
            "latent_graph": None if found.graph is None else found.graph.to_dict(),
            "standard_errors": found.errors,
        },
    )
