"""Theorem 1, exactly: all sequences enumerated, float64, with every ingredient left out in turn."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.relations import selections
from imir_detect.models.idealised import idealised
from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory.confinement import (
    decay,
    outside_share,
    population_gradient,
    random_point,
    sample_rotated,
)
from imir_detect.theory.enumeration import TinyRecall

UNDIRECTED = torch.tensor([1, 0, 3, 2, -1, -1, -1])
DIRECTED = torch.tensor([3, 4, 5, -1, -1, -1])


def share(layers, *, relation=UNDIRECTED, task=None, chosen=None, heads=1, **model_knobs) -> float:
    knobs = {"rare_frequency": 0.4 if relation is UNDIRECTED else 0.0, **(task or {})}
    tiny = TinyRecall(relation, 2, 5 if knobs.get("offsets") == "fixed" else 4, **knobs)
    model = idealised(
        len(relation),
        tiny.n_positions,
        layers,
        heads,
        relation=relation,
        **{"centring": "class", **model_knobs},
    )
    frame = model.frame(selections(relation, tiny.n_positions, **(chosen or {})))
    return outside_share(frame, population_gradient(random_point(model, frame), tiny.enumerate()))


CONFINED = {
    "centred by class": {},
    "two heads": {"heads": 2},
    "directed": {"relation": DIRECTED},
    "plain with all-ones": {"chosen": {"ones": True}, "centring": "none"},
    "one common offset": {"task": {"offsets": "common"}},
    "variability": {"relation": torch.tensor([1, 0, 3, 2, 5, 4]), "task": {"variability": 0.3}},
}
LEAKY = {
    "no association": {"chosen": {"association": False}},
    "no transpose": {
        "relation": DIRECTED,
        "chosen": {"back": False},
        "task": {"variability": 0.5},
    },
    "one identity": {"chosen": {"per_class": False}},
    "truncated shifts": {"chosen": {"shifts": 1}},
    "plain, no all-ones": {"centring": "none"},
    "global centring, no all-ones": {"centring": "global"},
    "overlapping paths": {"values": "random", "width": 11},
    "fixed offsets": {"task": {"offsets": "fixed"}},
    "skewed tokens": {"task": {"skew": 1.0}},
}


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("name", CONFINED)
def test_the_gradient_stays_in_the_span(name, layers) -> None:
    assert share(layers, **CONFINED[name]) < 1e-20


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("name", LEAKY)
def test_it_leaves_when_an_ingredient_is_missing(name, layers) -> None:
    assert share(layers, **LEAKY[name]) > 1e-5


def test_enumeration_gives_the_laws_probabilities() -> None:
    task = TinyRecall(UNDIRECTED, 2, 4, rare_frequency=0.4, variability=0.25)
    data = task.enumerate()
    assert float(data.weight.sum()) == pytest.approx(1.0)
    first = data.tokens[:, 0]
    assert float(data.weight[first >= 4].sum()) == pytest.approx(0.4)
    # First blocks 0 -> 1 by R: 0.6 * 1/4 * 0.75.
    by_r = (first == 0) & (data.tokens[:, 1] == 1)
    assert float(data.weight[by_r].sum()) == pytest.approx(0.6 / 4 * 0.75)
    places = Counter(map(tuple, data.positions.tolist()))
    assert len(places) == 64
    assert len(set(places.values())) == 1


def test_the_answer_is_the_value_of_the_asked_key() -> None:
    data = TinyRecall(DIRECTED, 2, 4).enumerate()
    for tokens, answer in zip(data.tokens.tolist(), data.answer.tolist(), strict=True):
        assert dict([tokens[0:2], tokens[2:4]])[tokens[4]] == answer


def test_the_sampled_share_falls_and_a_broken_one_does_not() -> None:
    task = AssociativeRecall(
        n_blocks=2, n_common=6, n_rare=4, rare_frequency=0.4, query_never_first=False
    )
    model = idealised(10, 6, 2, relation=task.relation, centring="class", dtype=torch.float32)
    frame = model.frame(selections(task.relation, 6))
    point = random_point(model, frame)
    sizes = (2**8, 2**10, 2**12)
    kept = decay(point, frame, task, sizes=sizes)
    broken = decay(point, frame, task, sizes=sizes, rotate=False)
    assert -1.3 < kept.slope < -0.7
    assert abs(kept.split) < 0.01
    assert abs(broken.slope) < 0.2
    assert broken.split > 0.03


def test_a_task_too_large_to_enumerate_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be enumerated"):
        TinyRecall(torch.full((9,), -1), 3, 8, rare_frequency=1.0).enumerate()


def test_a_stationary_point_is_refused() -> None:
    model = idealised(2, 2, 1)
    frame = model.frame(selections(torch.tensor([-1, -1]), 2))
    with pytest.raises(InvalidArgumentError, match="gradient is zero"):
        outside_share(frame, (model.attention, model.output))


def test_sampling_refuses_what_is_not_consecutive_and_what_overlaps() -> None:
    with pytest.raises(InvalidArgumentError, match="consecutive, noise-free"):
        sample_rotated(AssociativeRecall(label_noise=0.1), 4, n_positions=99, seed=0)
    with pytest.raises(InvalidArgumentError, match="must not meet themselves"):
        sample_rotated(AssociativeRecall(n_blocks=2), 4, n_positions=4, seed=0)
