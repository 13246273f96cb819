"""Stacked training against the native model and torch's own optimiser."""

from __future__ import annotations

import math

import pytest
import torch

from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks import make_task
from imir_detect.training import stack
from imir_detect.training.loop import Recipe
from imir_detect.training.stack import CHUNK, Member, sinusoids, train_stack
from imir_detect.training.stack_run import members_begun
from imir_detect.training.stacked_forward import forward
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import load_parameters, parameters

SHAPES = (
    {},
    {"norm": "LN"},
    {"norm": "RMS", "d_mlp": 24},
    {"norm": "LNPre", "n_layers": 3},
    {"norm": "RMSPre", "position": "rotary", "d_head": 8},
)
KNOBS = {"n_blocks": 2, "n_common": 8, "n_rare": 4, "rare_frequency": 0.3}


def recall_task():
    return make_task("recall", **KNOBS)


def recall_spec(**shape):
    task = recall_task()
    return ModelSpec(task.vocab_size, task.n_positions, d_model=16, **shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_stacked_forward_pass_is_the_native_models(shape) -> None:
    spec = ModelSpec(12, 9, d_model=16, **{"n_heads": 2, **shape})
    bridges = [spec.boot(seed) for seed in range(3)]
    for bridge in bridges:  # gains and biases that a fresh model does not have
        for parameter in bridge.parameters():
            parameter.data += 0.1 * torch.randn(parameter.shape)
    stack = {k: torch.stack([parameters(b)[k] for b in bridges]) for k in parameters(bridges[0])}
    tokens = torch.randint(12, (3, 5, 9))
    native = torch.stack([b.original_model(t) for b, t in zip(bridges, tokens, strict=True)])
    assert torch.allclose(forward(stack, spec, tokens), native, atol=1e-4)
    late = forward(stack, spec, tokens, first=6)
    assert torch.allclose(late, native[:, :, 6:], atol=1e-4)


def test_steps_are_those_of_torchs_adamw() -> None:
    task, spec = recall_task(), recall_spec()
    recipe = Recipe(steps=3, batch=8, evaluate_every=3, warmup=2, weight_decay=0.1, seed=5)
    (done,) = train_stack([Member("one", task, recipe)], spec)

    bridge = spec.boot(5)
    optimiser = torch.optim.AdamW(bridge.parameters(), weight_decay=0.1)
    data = task.sample(CHUNK * 8, generator=torch.Generator().manual_seed(5))
    for step in range(3):
        batch = data[8 * step : 8 * step + 8]
        optimiser.param_groups[0]["lr"] = recipe.rate_at(step)
        logits = bridge.original_model(batch.tokens)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for name, parameter in parameters(bridge).items():
        # A gradient of round-off size moves Adam by a whole step, in either direction.
        if "k.bias" not in name:
            assert torch.allclose(done.tensors[name], parameter, atol=2e-4), name


def test_a_member_is_the_same_in_any_company_and_ends_when_it_reaches_its_target() -> None:
    task, spec = recall_task(), recall_spec()
    never = Recipe(steps=40, batch=8, evaluate_every=20, seed=1)
    soon = Recipe(steps=40, batch=8, evaluate_every=20, seed=2, stop_at={"accuracy": 0.0})
    (alone,) = train_stack([Member("a", task, never)], spec)
    both = list(train_stack([Member("b", task, soon), Member("a", task, never)], spec))
    assert [done.member.name for done in both] == ["b", "a"]
    assert [len(done.history) for done in both] == [1, 2]
    last = both[1].tensors["head.weight"]
    assert torch.allclose(last, alone.tensors["head.weight"], atol=1e-3)


class Killed(Exception):
    """What stops a run."""


def killed_at(last, members, spec, file, monkeypatch) -> None:
    """Train until the step of that number, and no further."""
    step = stack._step

    def failing(*args):
        if args[-1] == last:
            raise Killed
        return step(*args)

    with monkeypatch.context() as patch:
        patch.setattr(stack, "_step", failing)
        with pytest.raises(Killed):
            list(train_stack(members, spec, file=file))


# 30 steps, evaluated every 10: before the first, in the middle of a chunk of data, after b ended,
# and at the border of a chunk that is an evaluation too (80 = 5 * 16).
@pytest.mark.parametrize(("last", "every"), [(3, 10), (17, 10), (29, 10), (95, 80)])
def test_a_killed_stack_goes_on_to_the_same_bits(last, every, tmp_path, monkeypatch) -> None:
    task, spec = recall_task(), recall_spec()
    steps = 100 if every == 80 else 30
    how = {"steps": steps, "batch": 4, "evaluate_every": every}
    ends = {"accuracy": 0.0} if last > 20 else {}
    members = [
        Member("a", task, Recipe(seed=1, **how)),
        Member("b", task, Recipe(seed=2, stop_at=ends, **how)),
        Member("c", task, Recipe(seed=3, **how)),
    ]
    whole = {done.member.name: done for done in train_stack(members, spec)}
    file = tmp_path / "stack"
    killed_at(last, members, spec, file, monkeypatch)
    assert members_begun(file) == ("a", "b", "c")
    rest = {done.member.name: done for done in train_stack(members, spec, file=file)}
    assert set(rest) == ({"a", "c"} if ends else {"a", "b", "c"})
    for name, done in rest.items():
        assert done.history == whole[name].history
        for key, tensor in done.tensors.items():
            assert torch.equal(tensor, whole[name].tensors[key]), (name, key)
    assert not file.exists()
    assert members_begun(file) == ()


def test_a_stack_of_other_members_is_refused(tmp_path) -> None:
    task, spec = recall_task(), recall_spec()
    members = [Member("a", task, Recipe(steps=4, batch=4, evaluate_every=2, seed=1))]
    next(train_stack(members, spec, file=tmp_path / "stack"))
    others = [Member("a", task, Recipe(steps=4, batch=4, evaluate_every=2, seed=2))]
    with pytest.raises(
        InvalidArgumentError, match=r"got members\.a\.recipe\.seed=2; wanted .*seed=1"
    ):
        next(train_stack(others, spec, file=tmp_path / "stack"))


def test_a_member_that_diverged_keeps_its_history(tmp_path, monkeypatch) -> None:
    task, spec = recall_task(), recall_spec()
    members = [Member("a", task, Recipe(steps=4, batch=4, evaluate_every=2, rate=1e30))]
    (whole,) = train_stack(members, spec)
    killed_at(3, members, spec, tmp_path / "stack", monkeypatch)
    (done,) = train_stack(members, spec, file=tmp_path / "stack")
    assert math.isnan(done.history[0]["loss"])
    assert str(done.history) == str(whole.history)  # NaN is not equal to itself


def test_tied_models_stay_tied_and_sinusoids_stay_put() -> None:
    task, spec = recall_task(), recall_spec()
    recipe = Recipe(steps=5, batch=8, evaluate_every=5)
    (done,) = train_stack([Member("a", task, recipe, tied=True, sinusoidal=True)], spec)
    own = done.tensors
    assert torch.equal(own["head.weight"], own["tok_embed.weight"])
    assert torch.equal(own["pos.weight"], sinusoids(spec.n_ctx, spec.d_model))
    assert not torch.equal(own["tok_embed.weight"], parameters(spec.boot(0))["tok_embed.weight"])
    load_parameters(spec.boot(0), own)


def test_members_that_do_not_fit_are_refused() -> None:
    task, spec = recall_task(), recall_spec()
    members = [Member("a", task, Recipe(steps=5)), Member("b", task, Recipe(steps=6))]
    with pytest.raises(InvalidArgumentError, match="got 2 kinds of recipe") as caught:
        next(train_stack(members, spec))
    assert "group the members" in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="d_vocab=9"):
        next(train_stack(members[:1], ModelSpec(9, task.n_positions)))
