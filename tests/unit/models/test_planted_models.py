"""Planted circuits: the derived truth against every subset of edges, and against exact patching."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from imir_detect import read_weights
from imir_detect.benchmark.cases import question_of
from imir_detect.benchmark.graph import PatchedModel
from imir_detect.benchmark.prompts import draw_prompts
from imir_detect.benchmark.truth import KEEPS, faithful, minimal_circuits, shares_kept
from imir_detect.errors import InvalidArgumentError
from imir_detect.models.planted import FED, KINDS, PlantedSpec, build, jobs, relation_of
from imir_detect.models.planted_task import PlantedTask
from imir_detect.models.planted_truth import ABLATIONS, truth_of
from imir_detect.weights.run import run_logits

LARGER = ("induction_long_prefix", "k_hop", "backward_retrieval")  # too many edges for every subset
ANSWERING = tuple(k for k in KINDS if k not in ("none", "prefix_match", *LARGER))
SMALL = {"vocab": 9, "context": 8}


def patched(spec: PlantedSpec, ablation: Any, n: int = 32, seed: int = 1) -> PatchedModel:
    prompts = draw_prompts(PlantedTask(spec), n, seed=seed, sign=question_of(spec).sign)
    return PatchedModel(read_weights(build(spec)), prompts, ablation)


@pytest.mark.parametrize("ablation", ABLATIONS)
@pytest.mark.parametrize("kind", ANSWERING)
def test_the_truth_is_what_trying_every_subset_finds(kind: Any, ablation: Any) -> None:
    spec = PlantedSpec(kind, heads=1, norm="LN", **SMALL)
    assert set(minimal_circuits(patched(spec, ablation)).circuits) == set(
        truth_of(spec, ablation).circuits
    )


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_an_association_through_a_head_has_its_own_truth(ablation: Any) -> None:
    spec = PlantedSpec("in_weights", by_head=True, heads=1, **SMALL)
    assert minimal_circuits(patched(spec, ablation)).circuits == truth_of(spec, ablation).circuits


def test_edges_of_induction_by_ablation_are_those_worked_out_on_paper() -> None:
    spec = PlantedSpec("induction", heads=1)
    tokens = {
        "embed -V-> L0H0",
        "embed -Q-> L1H0",
        "L0H0 -K-> L1H0",
        "embed -V-> L1H0",
        "L1H0 -out-> output",
    }
    places = {"embed -Q-> L0H0", "embed -K-> L0H0"}  # positions alone: the same in every sequence
    assert {str(e) for e in truth_of(spec, "zero").edges} == tokens | places
    assert {str(e) for e in truth_of(spec, "mean").edges} == tokens
    assert {str(e) for e in truth_of(spec, "resample").edges} == tokens


HARD = {
    "noise": PlantedSpec("induction", noise=0.1, distractors=1, norm="LN"),
    "split": PlantedSpec("skip", feeders="split", heads=3, noise=0.1),
    "redundant": PlantedSpec("induction", feeders="redundant", readers=2, noise=0.1),
    "pointer": PlantedSpec("pointer_induction", feeders="redundant", readers=2, norm="RMS"),
    "triggers": PlantedSpec("suppression", triggers=3, noise=0.1, distractors=1),
    "prefix": PlantedSpec("induction_long_prefix", noise=0.1, norm="LN"),
    "hops": PlantedSpec("k_hop", layers=3, heads=1),
    "backward": PlantedSpec("backward_retrieval", noise=0.1, distractors=1, norm="RMS"),
    "deep": PlantedSpec("induction", layers=4, feeder_layer=1, reader_layer=2, distractors=3),
}


@pytest.mark.parametrize("ablation", ABLATIONS)
@pytest.mark.parametrize("name", HARD)
def test_every_circuit_is_faithful_and_loses_answers_without_any_edge(
    name: str, ablation: Any
) -> None:
    spec = HARD[name]
    model = patched(spec, ablation, n=48)
    truth = truth_of(spec, ablation)
    assert len(truth.circuits) == (4 if name in ("redundant", "pointer") else 1)
    circuit = truth.circuits[-1]
    keep = torch.tensor([float(edge in circuit) for edge in model.edges])
    assert faithful(model, keep)
    for index in keep.nonzero()[:, 0].tolist():
        keep[index] = 0.0
        assert shares_kept(model, model.run(keep)) < KEEPS, model.edges[index]
        keep[index] = 1.0


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_other_edges_change_nothing_where_there_is_no_noise(ablation: Any) -> None:
    spec = PlantedSpec("induction", layers=3, heads=3, distractors=4, feeders="split")
    model = patched(spec, ablation)
    truth = truth_of(spec, ablation)
    used = torch.tensor([float(edge in truth.edges) for edge in model.edges])
    generator = torch.Generator().manual_seed(0)
    scale = float(model.full_logits.abs().max())
    for _ in range(8):
        extra = torch.randint(2, used.shape, generator=generator).float()
        change = model.run(torch.maximum(used, extra)) - model.full_logits
        assert float(change.abs().max()) < 2e-4 * scale  # float32 weights, sharpness 16 nats


@pytest.mark.parametrize("kind", ["none", "prefix_match"])
def test_what_answers_nothing_has_an_empty_truth(kind: Any) -> None:
    spec = PlantedSpec(kind, noise=0.1)
    model = patched(spec, "zero", n=256)
    assert truth_of(spec, "zero").edges == frozenset()
    assert float(model.prompts.right(model.full_logits).double().mean()) < 0.2


def test_units_are_named_as_the_frame_names_them() -> None:
    spec = PlantedSpec("induction", heads=1)
    units = {(name, str(direction)) for name, direction in truth_of(spec, "zero").units}
    assert units == {
        ("shift", "L0H0[shift 1] q:direct k:direct"),
        ("match", "L1H0[identity] q:direct k:L0H0"),
        ("copy", "out[identity] L1H0"),
    }
    assert {name for name, _ in truth_of(spec, "mean").units} == {"match", "copy"}


def named(spec: PlantedSpec) -> set[tuple[str, str]]:
    return {(name, str(direction)) for name, direction in truth_of(spec, "mean").units}


def test_units_of_several_steps_follow_every_slot_to_its_writers() -> None:
    assert named(PlantedSpec("k_hop", layers=3, heads=1)) == {
        ("match", "L1H0[identity] q:direct k:L0H0"),
        ("match", "L2H0[identity] q:L1H0 k:L0H0"),
        ("copy", "out[identity] L2H0"),
    }
    assert named(PlantedSpec("backward_retrieval", heads=1)) == {
        ("match", "L1H0[identity] q:direct k:direct"),
        ("copy", "out[identity] L0H0>L1H0"),
    }
    spec = PlantedSpec("induction_long_prefix", heads=2, seed=1)
    near, far = (job.head for job in jobs(spec)[:2])
    ((reader, _),) = [(job.head, 0) for job in jobs(spec) if job.role == "reader"]
    a, b, c = (f"L{layer}H{head}" for layer, head in (near, far, reader))
    assert named(spec) == {
        ("match", f"{c}[identity] q:direct k:{a}"),
        ("match", f"{c}[identity] q:{a} k:{b}"),
        ("copy", f"out[identity] {c}"),
    }


def test_the_bridge_computes_what_its_weights_say() -> None:
    spec = PlantedSpec("induction", norm="LN", noise=0.1)
    model = build(spec)
    batch = PlantedTask(spec).sample(8, generator=torch.Generator().manual_seed(0))
    found = patched(spec, "zero", n=8)
    logits = run_logits(model, found.prompts.tokens)[:, -1]
    centred = logits - logits.mean(-1, keepdim=True)
    assert torch.allclose(centred, found.full_logits, atol=1e-4)
    assert batch.tokens.shape == (8, spec.context)


def test_size_is_free_and_the_circuit_stays() -> None:
    spec = PlantedSpec("induction", layers=3, heads=5, d_model=160, d_head=20)
    model = patched(spec, "mean")
    assert model.prompts.right(model.full_logits).all()
    assert model.weights.W_E.shape == (14, 160)
    assert len([job for job in jobs(spec) if job.role != "distractor"]) == 2
    assert jobs(spec) != jobs(replace(spec, seed=5))  # heads are drawn anew


def test_a_plan_that_does_not_fit_is_refused_in_four_parts() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        PlantedSpec("induction", layers=1, heads=1, distractors=5, d_head=3)
    text = str(caught.value)
    for part in ("cannot be planted", "d_head of at least 14", "a feeder's layer", "distractors"):
        assert part in text
    for wrong in ({"kind": "duplicate_token", "feeders": "split"}, {"triggers": 1}):
        with pytest.raises(InvalidArgumentError, match="cannot be planted"):
            PlantedSpec(**wrong)  # type: ignore[arg-type]
    assert "induction" in FED


def test_partners_of_an_odd_vocabulary() -> None:
    assert relation_of(PlantedSpec(vocab=9, context=8)).tolist() == [1, 0, 3, 2, 5, 4, 7, 6, -1]
