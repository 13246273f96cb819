"""Roles measured by running a model, against a planted one whose heads are known."""

import pytest

from imir_detect.models.planted import PlantedSpec, build
from imir_detect.tasks import make_task
from imir_detect.zoo.roles import ROLES, head_measures, roles_of


def test_a_planted_induction_circuit_is_measured_for_what_it_is() -> None:
    # 11 tokens: five blocks and the query; the query is never first, so its key has a predecessor.
    spec = PlantedSpec("induction", context=11, vocab=14, heads=2, distractors=0, seed=0)
    task = make_task(
        "recall", n_blocks=5, n_common=0, n_rare=14, rare_frequency=1.0, query_never_first=True
    )
    rows = head_measures(build(spec), task)
    roles = {role: [h for h, found in roles_of(rows).items() if found[role]] for role in ROLES}
    assert len(roles["previous_token"]) == len(roles["induction"]) == 1
    assert roles["previous_token"][0][0] == 0
    assert roles["induction"][0][0] == 1
    assert roles["duplicate_token"] == []
    feeder, reader = roles["previous_token"][0], roles["induction"][0]
    by_head = {(row["layer"], row["head"]): row for row in rows}
    assert by_head[feeder]["back"] > 0.99
    assert by_head[reader]["answer"] > 0.99
    assert by_head[feeder]["cost_back"] > 0.5
    assert by_head[reader]["cost"] > 0.5


def test_tasks_without_fresh_pairs_have_no_roles() -> None:
    task = make_task("copy_last", n_tokens=11, n_common=14)
    assert head_measures(build(PlantedSpec("none", context=11)), task) == []


@pytest.mark.parametrize(
    ("attention", "cost", "role"), [(0.5, 0.2, True), (0.5, 0.0, None), (0.3, 0.2, None)]
)
def test_between_the_bars_a_role_is_ambiguous(attention, cost, role) -> None:
    row = {"layer": 0, "head": 0, "back": 0.1, "copy": 0.0, "answer": attention}
    found = roles_of([{**row, "cost": cost, "cost_back": 0.0}])[(0, 0)]
    assert found == {"induction": role, "duplicate_token": False, "previous_token": False}
