"""The input gate: every problem of a call is told at once, each in words that say what to do."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest
import torch

from imir_detect import (
    ImirError,
    detect_circuits,
    make_task,
    predict_attention,
    read_weights,
)
from imir_detect.arguments import whole
from imir_detect.behaviour import repeated_attention
from imir_detect.circuits.causal_graph import recover_causal_graph
from imir_detect.errors import InvalidArgumentError, UnsupportedModelError
from imir_detect.gate import admit
from imir_detect.tasks import AssociativeRecall, Batch
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec

NONE: dict[str, Any] = {
    "task": None, "relation": None, "context": None, "verify": None, "seed": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def weights() -> ModelWeights:
    return read_weights(planted.induction())  # 14 tokens, 14 positions


def refused(model: Any, **given: Any) -> ImirError:
    with pytest.raises(ImirError) as caught:
        admit(model, **{**NONE, **given})
    return caught.value


def test_the_front_door_goes_through_the_gate() -> None:
    with pytest.raises(
        ImirError, match=r"2 problems:\n\(1\) this kind .*got None.*\n\(2\) this is"
    ):
        detect_circuits(None, seed="a")  # type: ignore[arg-type]


def test_all_problems_of_a_call_are_told_at_once(weights: ModelWeights) -> None:
    error = refused(weights, task="recal", relation={0: 99}, context=-1, verify="x", seed=1.5)
    assert [problem.what for problem in error.problems] == [
        "no such verification",
        "this is no seed",
        "no such task",
        "the relation pairs tokens that the model cannot have",
        "this context does not fit the model",
    ]
    assert str(error).startswith("5 problems:\n(1) no such verification; got 'x'; wanted ")
    assert all(problem.got and problem.wanted and problem.todo for problem in error.problems)
    assert type(error) is ImirError
    assert type(refused(weights, context=-1, seed=-1)) is InvalidArgumentError


def test_arguments_are_told_beside_a_model_that_is_not_read() -> None:
    error = refused("icl", relation={3: 3}, context=2)
    assert [problem.what for problem in error.problems] == [
        "this kind of model is not read",
        "this context does not fit the model",
        "the relation pairs tokens that the model cannot have",
    ]
    assert "wanted a whole number of 3 or more" in str(error)
    assert "wanted two different whole numbers from 0" in str(error)


def test_what_a_wrong_task_implies_is_no_second_problem(weights: ModelWeights) -> None:
    error = refused(weights, task="recall")
    assert error.problems == (error,)
    assert "the task does not fit the model; got 64 tokens and 17 positions" in str(error)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (None, "got None; wanted .*pass the model itself"),
        ("icl", r"got the text 'icl'; .*open_model\(name\), or shipped_model\(name\)"),
        (Path("a/model"), "got the text 'a/model'.*open_model"),
        (ModelSpec, "got the class ModelSpec; .*make an instance"),
        (
            {"a": torch.zeros(1)},
            r"got a mapping \(dict\); .*model_from_state_dict\(state, con",
        ),
        ([planted.empty], "got a list of 1; .*one model at a time"),
        (torch.nn.Linear(2, 2), "got torch.nn.modules.linear.Linear; .*wrap it"),
        (3, "got builtins.int; .*wrap it in a TransformerBridge"),
    ],
)
def test_what_is_no_model_is_named_with_the_way_to_one(model: Any, text: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"this kind of model is not read; {text}"):
        detect_circuits(model)


class Saved:
    """A tokenizer, or anything else that Hugging Face saves, as far as the gate can tell."""

    def save_pretrained(self) -> None: ...


class SavedModel(torch.nn.Module, Saved):
    """A Hugging Face model, likewise."""


def test_tokenizers_and_unwrapped_models_are_told_apart() -> None:
    assert "a tokenizer or a configuration" in str(refused(Saved()))
    assert "boot_transformers(name, hf_model=model) makes one" in str(refused(SavedModel()))


@pytest.mark.parametrize(
    ("relation", "text"),
    [
        ({99: 1, -1: 2, 3: 3}, "got 3 of 3 pairs: 99 -> 1, -1 -> 2, 3 -> 3; wanted"),
        ({"1": 2}, "got 1 of 1 pairs: '1' -> 2"),
        ({1: "2"}, "1 -> '2'"),
        ({True: 2}, "True -> 2"),
        ({1: 2.0}, "1 -> 2.0"),
        (torch.arange(14), "got 14 of 14 pairs: 0 -> 0, 1 -> 1, 2 -> 2 and 11 more"),
        (torch.full((14,), -2), "0 -> -2"),
        (torch.full((3,), -1), r"does not fit the model; got shape \(3,\) of torch.int64"),
        (torch.full((15,), -1), r"got shape \(15,\).*wanted whole numbers of shape \(14,\)"),
        (torch.zeros(14), "of torch.float32"),
        (torch.full((14,), float("nan")), "of torch.float32"),
        (torch.ones(14, dtype=torch.bool), "of torch.bool"),
        (torch.zeros(14, dtype=torch.complex64), "of torch.complex64"),
        (torch.tensor(3), r"got shape \(\)"),
        ("pairs", "got 'pairs', a str"),
        ({1, 2}, "got {1, 2}, a set"),
        (3, r"got shape \(\)"),
    ],
)
def test_relations_that_do_not_fit(weights: ModelWeights, relation: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        admit(weights, **{**NONE, "relation": relation})


@pytest.mark.parametrize(
    "relation",
    [
        {1: 2, 2: 1},
        {np.int64(1): torch.tensor(2), 2: 1},
        [-1, 2, 1, *[-1] * 11],
        np.array([-1, 2, 1, *[-1] * 11]),
        torch.tensor([-1, 2, 1, *[-1] * 11], dtype=torch.int8),
    ],
)
def test_relations_of_every_form_mean_the_same(weights: ModelWeights, relation: Any) -> None:
    found = admit(weights, **{**NONE, "relation": relation}).relation
    assert found is not None
    assert found.partner.tolist() == [-1, 2, 1, *[-1] * 11]


@pytest.mark.parametrize(
    "context", [0, -1, 2, 15, 10**30, True, 5.0, float("nan"), "8", [], torch.zeros(2)], ids=repr
)
def test_contexts_that_do_not_fit(weights: ModelWeights, context: Any) -> None:
    text = r"does not fit the model; got context=.*wanted a whole number in 3 .. 14; next step: lea"
    with pytest.raises(InvalidArgumentError, match=text):
        admit(weights, **{**NONE, "context": context})


@pytest.mark.parametrize("seed", [-1, 1.5, "a", None, True, 2**32, float("nan")], ids=repr)
def test_seeds_that_are_none(weights: ModelWeights, seed: Any) -> None:
    text = "this is no seed; got seed=.*wanted a whole number in 0 .. 4294967295; next step: leave"
    with pytest.raises(InvalidArgumentError, match=text):
        admit(weights, **{**NONE, "seed": seed})


def test_whole_numbers_of_any_kind_are_taken(weights: ModelWeights) -> None:
    question = admit(weights, **{**NONE, "context": np.int64(5), "seed": torch.tensor(3)})
    assert (question.context, question.seed) == (5, 3)
    assert type(question.context) is type(question.seed) is int
    assert [whole(v) for v in (np.bool_(True), torch.tensor(True), torch.ones(2))] == [None] * 3


@dataclass(frozen=True)
class OwnTask(AssociativeRecall):
    """A task of a user's own, which says one thing of itself and gives another."""

    wrong: str = ""

    def sample(self, n: int, *, generator: torch.Generator) -> Any:
        batch = super().sample(n, generator=generator)
        tokens = batch.tokens
        if self.wrong == "broken":
            raise ZeroDivisionError("division by zero")
        if self.wrong == "no batch":
            return tokens
        changed = {
            "vocabulary": tokens + self.vocab_size,
            "negative": tokens - self.vocab_size,
            "float": tokens.float(),
            "length": tokens[:, 1:],
        }.get(self.wrong, tokens)
        targets = batch.targets + 100 if self.wrong == "targets" else batch.targets
        same = [x[:, : changed.shape[1]] for x in (targets, batch.answer_position)]
        return Batch(changed, *same)


@pytest.mark.parametrize(
    ("task", "text"),
    [
        (3, "this is no task; got 3, a int; wanted a registered name"),
        (["recall"], r"this is no task; got \['recall'\], a list"),
        (AssociativeRecall, "got the class AssociativeRecall, not an instance of it"),
        (object(), "this is no task; got <object"),
        (OwnTask(2, 6, 8, wrong="broken"), "gives no sequences; got ZeroDivisionError: division"),
        (OwnTask(2, 6, 8, wrong="no batch"), "not what it says of itself; got a Tensor"),
        (OwnTask(2, 6, 8, wrong="vocabulary"), r"got tokens from \d+ to \d+; wanted .* below 14"),
        (OwnTask(2, 6, 8, wrong="negative"), "got tokens from -"),
        (OwnTask(2, 6, 8, wrong="float"), "got tokens of torch.float32"),
        (OwnTask(2, 6, 8, wrong="length"), r"got tokens of shape \(2, 4\)"),
        (OwnTask(2, 6, 8, wrong="targets"), "got targets up to 1"),
    ],
)
def test_tasks_that_are_none(weights: ModelWeights, task: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        admit(weights, **{**NONE, "task": task})


def test_a_task_whose_numbers_are_none_is_named(weights: ModelWeights) -> None:
    class Odd(OwnTask):
        competitors = 0  # type: ignore[assignment]

    with pytest.raises(InvalidArgumentError, match="got competitors=0, no whole number above 0"):
        admit(weights, **{**NONE, "task": Odd(2, 6, 8)})


def test_a_task_gives_relation_vocabulary_and_context(weights: ModelWeights) -> None:
    task = make_task("recall", n_blocks=2, n_common=6, n_rare=6)
    question = admit(weights, **{**NONE, "task": task})
    assert question.context == max(3, task.competitors)
    assert len(question.vocabulary) == 12
    assert question.relation is not None
    assert question.relation.partner.tolist() == [*task.relation.tolist(), -1, -1]


@pytest.mark.parametrize("sizes", [{"d_vocab": 1}, {"n_ctx": 1}])
def test_models_of_one_position_or_token(sizes: dict[str, int]) -> None:
    model = ModelSpec(**{"d_vocab": 9, "n_ctx": 6, "d_model": 8, **sizes}).boot(seed=0)
    text = (
        r"one position or one token .*; got \d positions and \d tokens; wanted at least 2 of each"
    )
    with pytest.raises(UnsupportedModelError, match=text):
        detect_circuits(model)


@pytest.mark.parametrize("sizes", [{"d_vocab": 2}, {"n_ctx": 2}])
def test_models_too_small_to_hold_a_circuit_hold_none(sizes: dict[str, int]) -> None:
    model = ModelSpec(**{"d_vocab": 9, "n_ctx": 6, "d_model": 8, **sizes}).boot(seed=0)
    report = detect_circuits(model)
    assert report.label == "none"
    assert not report.circuits
    assert any("context is too short to tell" in text for text in report.limits)


def test_the_smallest_models_get_an_answer() -> None:
    model = ModelSpec(3, 3, d_model=2, n_heads=2).boot(seed=0)
    assert detect_circuits(model).label == "none"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"nodes": 1}, "nodes does not fit the model's positions; got 1; wanted from 2 to 14"),
        ({"nodes": "3"}, "nodes does not fit the model's positions; got '3'"),
        ({"nodes": True}, "got True"),
        ({"seed": -1}, "this is no seed; got seed=-1"),
        ({"min_confidence": float("nan")}, "no confidence is like this; got min_confidence=nan"),
        ({"min_confidence": 2, "seed": "a"}, "2 problems"),
    ],
)
def test_arguments_of_the_causal_graph(
    weights: ModelWeights, given: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        recover_causal_graph(weights, **given)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("model", 0, None), "attention is predicted from weights; got a str; wanted ModelWeights"),
        (
            (None, 2, torch.zeros(1, 3, 70)),
            r"has no such layer; got layer=2; wanted .* 0 \.\. 1",
        ),
        ((None, -1, torch.zeros(1, 3, 70)), "has no such layer; got layer=-1"),
        ((None, True, torch.zeros(1, 3, 70)), "has no such layer; got layer=True"),
        ((None, 0, torch.zeros(3, 70)), r"no residual stream of the model; got shape \(3, 70\)"),
        ((None, 0, torch.zeros(1, 3, 71)), r"got shape \(1, 3, 71\); wanted \(n, pos, 70\)"),
        ((None, 0, "x"), r"got shape \(\); wanted"),
        ((None, 0, torch.zeros(1, 3, 70) / 0), "stream is not finite; got 210 of 210 entries"),
    ],
)
def test_arguments_of_predicted_attention(
    weights: ModelWeights, given: tuple[Any, Any, Any], text: str
) -> None:
    first, layer, residual = given
    with pytest.raises(InvalidArgumentError, match=text):
        predict_attention(first or weights, layer, residual)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"contexts": 0}, "contexts does not fit; got contexts=0; wanted a whole number of 1 or"),
        ({"period": 1.5}, "period does not fit; got period=1.5"),
        ({"seed": None}, "this is no seed"),
    ],
)
def test_arguments_of_measured_attention(
    weights: ModelWeights, given: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidArgumentError, match="by running the model; got a ModelWeights"):
        repeated_attention(weights)
    with pytest.raises(InvalidArgumentError, match=text):
        repeated_attention(planted.induction(), **given)
