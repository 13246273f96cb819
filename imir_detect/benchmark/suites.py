"""Suites of cases by name: `quick` (CI), `core` (an hour on two cores), `full`.

A case's name is MODEL/ABLATION/GRANULARITY; it can be made from its name alone, on any worker.
MODEL~fresh, MODEL~reset and MODEL~other are negative controls beside MODEL.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from imir_detect.benchmark.cases import GRANULARITIES, Case, planted_case
from imir_detect.benchmark.controls import CONTROLS, control_case
from imir_detect.benchmark.trained import SHIPPED_ASKED, TRAINED, trained_case, trained_model
from imir_detect.errors import UnknownNameError
from imir_detect.models.planted import PlantedSpec, build
from imir_detect.models.planted_truth import ABLATIONS

P = PlantedSpec
# fmt: off
PLANTED: dict[str, PlantedSpec] = {
    # Each kind by itself, with noise and a distractor.
    "induction": P("induction", noise=0.1, distractors=1, seed=1),
    "pointer": P("pointer_induction", noise=0.1, distractors=1, seed=2),
    "skip": P("skip", noise=0.1, distractors=1, seed=3),
    "previous": P("previous_token", noise=0.1, distractors=2, seed=4),
    "offset": P("offset", noise=0.1, distractors=2, seed=5),
    "duplicate": P("duplicate_token", noise=0.1, distractors=2, seed=6),
    "in-weights": P("in_weights", noise=0.1, distractors=2, seed=7),
    "in-weights-head": P("in_weights", by_head=True, noise=0.1, distractors=2, seed=8),
    "suppression": P("suppression", noise=0.1, distractors=1, seed=9),
    "sink": P("position_sink", noise=0.1, distractors=2, seed=10),
    # Hard: redundant and split parts, few triggers, norms, depth, many distractors.
    "induction-clean": P("induction", seed=11),
    "induction-redundant": P("induction", feeders="redundant", readers=2, noise=0.1, seed=12),
    "induction-split": P("induction", feeders="split", noise=0.1, heads=3, seed=13),
    "induction-triggers": P("induction", triggers=3, noise=0.1, distractors=1, seed=14),
    "induction-layernorm": P("induction", norm="LN", noise=0.1, distractors=1, seed=15),
    "induction-deep": P(
        "induction", layers=4, heads=2, reader_layer=2, feeder_layer=1, norm="RMS", noise=0.1,
        distractors=3, seed=16,
    ),
    "induction-crowd": P("induction", layers=3, heads=4, noise=0.2, distractors=8, seed=17),
    "pointer-redundant": P(
        "pointer_induction", feeders="redundant", readers=2, norm="RMS", noise=0.1, seed=18
    ),
    "suppression-layernorm": P(
        "suppression", norm="LN", noise=0.2, distractors=2, heads=3, seed=19
    ),
    "skip-split": P("skip", feeders="split", norm="LN", noise=0.1, heads=3, seed=20),
}

SUITES = ("quick", "core", "full")
FULL_ONLY = (
    "induction-clean", "induction-triggers", "pointer-redundant", "suppression-layernorm",
    "skip-split", "shipped-iwl", "shipped-mixed",
)  # slow, or like others
QUICK = ("induction", "in-weights-head", "induction-redundant")
HEADS_TOO = ("induction", "previous")
UNITS_TOO = (
    "induction", "induction-redundant", "induction-layernorm", "skip", "previous", "duplicate",
    "in-weights",
)  # kinds whose parts the frame can name
# Models that have controls, and for each the model with another circuit.
CONTROLLED = {"induction": "duplicate", "icl-plain": "iwl-plain", "iwl-plain": "icl-plain"}
SHIFT = re.compile(r"\d{1,6}", re.ASCII)
CONTROL_ABLATIONS = ("zero", "resample")
# fmt: on


def case_names(suite: str) -> tuple[str, ...]:
    """Names of a suite's cases, in order."""
    if suite not in SUITES:
        raise UnknownNameError(
            "no such suite", got=repr(suite), wanted=", ".join(SUITES), todo="use one"
        )
    models = QUICK if suite == "quick" else (*PLANTED, *TRAINED, *SHIPPED_ASKED)
    if suite == "core":
        models = tuple(model for model in models if model not in FULL_ONLY)
    names = [f"{model}/{ablation}/edge" for model in models for ablation in ABLATIONS]
    if suite == "quick":
        return (*names, "induction/zero/unit", "induction~reset/zero/edge")
    names += [f"{model}/zero/unit" for model in UNITS_TOO]
    names += [
        f"{model}~{kind}/{ablation}/edge"
        for model in CONTROLLED
        for kind in CONTROLS
        for ablation in CONTROL_ABLATIONS
    ]
    if suite == "core":
        names += [f"{model}/{ablation}/head" for model in HEADS_TOO for ablation in ABLATIONS]
    else:
        names += [f"{model}/{ablation}/head" for model in models for ablation in ABLATIONS]
        names += [
            f"{model}+seed{s}/{a}/edge" for model in PLANTED for s in (1, 2) for a in ABLATIONS
        ]
    return tuple(names)


def case_parts(name: str) -> tuple[str, int, str, str, str]:
    """Model, seed shift, control, ablation and granularity of a case's name.

    Raises UnknownNameError for a name of no case.
    """
    whole, _, rest = name.partition("/")
    ablation, _, granularity = rest.partition("/")
    planned, _, control = whole.partition("~")
    model, _, shift = planned.partition("+seed")
    known = model in PLANTED or model in TRAINED or model in SHIPPED_ASKED
    known &= "~" not in whole or (control in CONTROLS and model in CONTROLLED)
    known &= "+seed" not in whole or (model in PLANTED and SHIFT.fullmatch(shift) is not None)
    known &= ablation in ABLATIONS and granularity in GRANULARITIES
    if not known or (granularity == "unit" and model not in PLANTED):
        raise UnknownNameError(
            "no such case",
            got=repr(name),
            wanted="MODEL/ABLATION/GRANULARITY",
            todo="see the names that `imir-detect bench cases core` lists",
        )
    return model, int(shift or 0), control, ablation, granularity


def make_case(name: str, folder: Path) -> Case:
    """The case of that name. Trained models are kept in `folder`.

    `MODEL+seedN` is a planted model with N x 1000 added to its seed.
    """
    model, shift, control, ablation, granularity = case_parts(name)
    whole = name.partition("/")[0].partition("~")[0]
    if control:
        twin = make_case(f"{whole}/{ablation}/{granularity}", folder)
        other = CONTROLLED[model]
        made = build(PLANTED[other]) if other in PLANTED else trained_model(other, folder)
        return control_case(twin, control, made)  # type: ignore[arg-type]
    if model in PLANTED:
        spec = PLANTED[model]
        spec = replace(spec, seed=spec.seed + 1000 * shift)
        return planted_case(whole, spec, ablation, granularity)  # type: ignore[arg-type]
    return trained_case(model, ablation, granularity, folder=folder)  # type: ignore[arg-type]
