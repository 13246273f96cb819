"""Circuits whose work is shared by many heads, and heads that look where a circuit needs it."""

import pytest

from imir_detect import detect_circuits
from imir_detect.models.planted import PlantedSpec, build, jobs, relation_of


@pytest.mark.parametrize("kind", ["in_weights", "induction"])
def test_twelve_heads_that_bring_a_twelfth_each_are_all_of_the_circuit(kind) -> None:
    # A tenth of the total, asked of each, would leave out all of them.
    spec = PlantedSpec(kind, heads=12, readers=12, by_head=kind == "in_weights", gain=4 / 12)
    relation = relation_of(spec) if kind == "in_weights" else None
    (found,) = [
        c
        for c in detect_circuits(build(spec), relation=relation).circuits
        if c.works and c.kind == kind
    ]
    assert {job.head for job in jobs(spec)} == set(found.heads)
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
