"""Ablation by running: the literal calculation, counted passes, intervals worked out by hand."""

from typing import Any

import planted
import pytest
import torch

from imir_detect import detect_circuits, read_weights
from imir_detect.circuits.core import Circuit, Coverage
from imir_detect.coordinates.pathsum import OUTPUT, Edge
from imir_detect.edge_check import check_edges
from imir_detect.verification import (
    check_heads,
    interval,
    mean_and_error,
    repeated_questions,
)

VOCAB = planted.VOCAB


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.fixture(scope="module")
def model() -> Any:
    return planted.induction()


def test_the_second_and_later_periods_are_asked_for_the_next_token() -> None:
    asked = repeated_questions(torch.arange(5), 16, 2, generator=generator())
    assert asked.tokens.shape == (2, 15)  # the whole vocabulary three times
    assert torch.equal(asked.tokens[:, :5], asked.tokens[:, 10:])
    assert asked.place[asked.row == 0].tolist() == [6, 7, 8, 9, 10, 11, 12, 13]
    assert torch.equal(asked.wanted, asked.tokens[asked.row, asked.place - 4])
    assert asked.what == "2 contexts of 3 periods of 5 random tokens"


def test_intervals_are_students() -> None:
    # Of 0, 1, 2: mean 1, standard error 1 / sqrt(3), t of two degrees 4.3027.
    mean, error = mean_and_error(torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64))
    assert (mean, error) == (1.0, pytest.approx(3**-0.5))
    assert interval(mean, error, 3) == pytest.approx(
        [1 - 4.3027 / 3**0.5, 1 + 4.3027 / 3**0.5], 1e-4
    )
    # Two draws whose means are 0 and 2: variance over draws 2 / 2, over contexts none.
    mean, error = mean_and_error(torch.tensor([[0.0, 0.0], [2.0, 2.0]], dtype=torch.float64))
    assert (mean, error) == (1.0, 1.0)


def test_ablation_is_the_literal_one_and_passes_are_counted(model: Any) -> None:
    asked = repeated_questions(torch.arange(VOCAB), 14, 200, generator=generator())
    calls = []
    inner = model.run_with_hooks

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(model, name)

        def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
            calls.append(len(args[0]))
            return inner(*args, **kwargs)

    heads, others = [(0, 0)], [(0, 1), (1, 1)]
    found = check_heads(Counting(), asked, heads, others, generator=generator(), draws=3)
    assert found["forward_passes"] == len(calls)
    assert sum(calls) == 200 * (1 + 2 + 2 * 3)
    assert max(calls) == found["batch"] < 200

    name = "blocks.0.attn.hook_z"
    with torch.no_grad():
        _, cache = model.run_with_cache(asked.tokens, names_filter=lambda n: n == name)
        z = cache[name]

        def replace(rows: torch.Tensor) -> float:
            def hook(value: torch.Tensor, hook: Any) -> torch.Tensor:
                value = value.clone()
                value[:, :, 0] = rows[:, :, 0]
                return value

            logits = model.run_with_hooks(asked.tokens, fwd_hooks=[(name, hook)])
            best = logits[asked.row, asked.place].argmax(-1)
            return float((best == asked.wanted).double().mean())

        shift = 1 + int(torch.randint(199, (1,), generator=generator()))
        assert found["ablated"] == pytest.approx(replace(z.mean(0, keepdim=True).expand_as(z)))
        assert found["resampled"] == pytest.approx(replace(z.roll(shift, 0)))
    assert found["random"] == found["intact"] == 1.0  # the other heads do nothing
    assert found["drop"]["ablated"] == pytest.approx(1.0 - found["ablated"])
    low, high = found["intervals"]["ablated"]
    assert low <= found["ablated"] <= high < 0.3
    assert found["nats"]["intact"] > found["nats"]["ablated"]


def test_edges_carry_the_match_and_the_answer(model: Any) -> None:
    weights = read_weights(model)
    asked = repeated_questions(torch.arange(VOCAB), 14, 8, generator=generator())
    circuit = Circuit(
        "induction",
        ((0, 0), (1, 0)),
        (Edge((0, 0), (1, 0), "K"), Edge((1, 0), OUTPUT, "out")),
        {},
        1.0,
        Coverage(1.0, "positions"),
    )
    found = check_edges(model, weights, asked, circuit, generator=generator())
    key, out = found["edges"]
    assert key["edge"] == "L0H0 -K-> L1H0"
    assert key["intact"] > 0.9
    assert key["ablated"] < 0.35
    assert key["random"] == pytest.approx(key["intact"], abs=1e-6)
    assert out["edge"] == "L1H0 -out-> output"
    assert (out["intact"], out["random"]) == (1.0, 1.0)
    assert out["ablated"] < 0.3
    assert found["forward_passes"] == 1


def test_the_report_says_what_ablation_did_and_how_surely(model: Any) -> None:
    report = detect_circuits(model, verify="ablate")
    found = report.measured["ablation"]["induction"]
    assert found["asked"] == "32 contexts of 2 periods of 7 random tokens"
    assert len(found["edges"]) == 2
    said = str(report)
    assert "induction ablated, right answers: as it is 1.00 [1.00, 1.00]" in said
    assert f"({found['forward_passes']} forward passes)" in said
