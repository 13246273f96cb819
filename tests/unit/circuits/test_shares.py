"""Circuits whose work is shared by many heads, and heads that look where a circuit needs it."""

import pytest
import torch

from imir_detect import detect_circuits
from imir_detect.models.planted import PlantedSpec, build, jobs, relation_of


@torch.no_grad()
def share_out(model, head: tuple[int, int], heads: int) -> None:
    """Every head of the layer does what `head` did, and writes an equal share of it."""
    attention = model.blocks[head[0]].attn
    for linear in (attention.q, attention.k, attention.v):
        split = linear.weight.view(heads, -1, linear.weight.shape[1])
        split.copy_(split[head[1]].clone().expand_as(split))
    split = attention.o.weight.view(attention.o.weight.shape[0], heads, -1)
    split.copy_((split[:, head[1] : head[1] + 1] / heads).expand_as(split).clone())


@pytest.mark.parametrize("kind", ["in_weights", "induction"])
def test_twelve_heads_that_bring_a_twelfth_each_are_all_of_the_circuit(kind) -> None:
    # A tenth of the total, asked of each, would leave out all of them.
    spec = PlantedSpec(kind, heads=12, by_head=kind == "in_weights")
    model = build(spec)
    (reader,) = (job.head for job in jobs(spec) if job.role == "reader")
    share_out(model, reader, 12)
    relation = relation_of(spec) if kind == "in_weights" else None
    working = [c for c in detect_circuits(model, relation=relation).circuits if c.works]
    (found,) = [c for c in working if c.kind == kind]
    assert {(reader[0], index) for index in range(12)} <= set(found.heads)
    assert {job.head for job in jobs(spec)} <= set(found.heads)
    assert found.strength > 0.9


def test_a_matching_head_that_copies_nothing_is_named_beside_chance_answers() -> None:
    spec = PlantedSpec("prefix_match", seed=0)
    report = detect_circuits(build(spec))
    assert [c.kind for c in report.circuits if c.works] == ["previous_token", "prefix_match"]
    assert report.label == "none"


def test_feeders_that_look_elsewhere_have_no_role() -> None:
    # Redundant feeders look one back; the distractor, which nothing reads, matches tokens.
    spec = PlantedSpec("induction", heads=3, feeders="redundant", seed=1)
    report = detect_circuits(build(spec))
    roles = {(row["layer"], row["head"]): row["role"] for row in report.heads}
    planted = {job.head: job.role for job in jobs(spec)}
    for head, role in roles.items():
        wanted = {"feeder": "previous_token", "reader": "induction"}.get(planted.get(head, ""))
        assert role == (wanted or "none"), head
    (found,) = [c for c in report.circuits if c.kind == "induction"]
    assert dict(found.parts) == {head: roles[head] for head in found.heads}


def test_tokens_that_a_circuit_does_not_answer_for_are_not_asked() -> None:
    spec = PlantedSpec("induction", vocab=20, triggers=10, seed=0)
    report = detect_circuits(build(spec))
    (found,) = [c for c in report.circuits if c.kind == "induction"]
    assert found.strength > 0.9  # of contexts that ask for all twenty, one half
    # With R given, its word is taken for what is fresh: here nothing is named, so all are asked.
    plain = detect_circuits(build(spec), relation={})
    assert 0.3 < next(c for c in plain.circuits if c.kind == "induction").strength < 0.7
