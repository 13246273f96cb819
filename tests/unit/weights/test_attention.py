"""Rotation, windows, ALiBi, sinks and norms by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from imir_detect.errors import UnsupportedModelError
from imir_detect.weights.attention import Attention, QKNorm, Rotary
from imir_detect.weights.forward import causal_softmax, softmax
from imir_detect.weights.huggingface import alibi_slopes
from imir_detect.weights.norms import read_norm

DTYPE = torch.float64


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.booleans())
@settings(max_examples=30, deadline=None)
def test_rotated_scores_depend_on_the_distance_alone(i: int, j: int, by: int, pairs: bool) -> None:
    generator = torch.Generator().manual_seed(i * 31 + j)
    q, k = torch.randn(2, 1, 6, generator=generator, dtype=DTYPE)
    rotary = Rotary(torch.tensor([1.0, 0.3], dtype=DTYPE), adjacent=pairs)  # 4 of 6 dimensions turn

    def score(a: int, b: int) -> float:
        return float(rotary.rotate(q, torch.tensor([a])) @ rotary.rotate(k, torch.tensor([b])).T)

    assert math.isclose(score(i, j), score(i + by, j + by), abs_tol=1e-9)


def test_pairs_are_neighbours_or_halves() -> None:
    row = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=DTYPE)
    quarter = torch.tensor([math.pi / 2, 0.0], dtype=DTYPE)
    at_one = torch.tensor([1])
    # The first pair turns by a right angle: (a, b) -> (-b, a); the second stays.
    adjacent = Rotary(quarter, adjacent=True).rotate(row, at_one)
    halves = Rotary(quarter, adjacent=False).rotate(row, at_one)
    assert torch.allclose(adjacent, torch.tensor([[-2.0, 1.0, 3.0, 4.0]], dtype=DTYPE))
    assert torch.allclose(halves, torch.tensor([[-3.0, 2.0, 1.0, 4.0]], dtype=DTYPE))


def test_the_mean_turn_averages_scores_over_distances() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 4, generator=generator, dtype=DTYPE)
    rotary = Rotary(torch.tensor([0.7, 0.2], dtype=DTYPE), adjacent=False, magnitude=1.5)
    distances = torch.arange(1, 6)
    at_zero = rotary.rotate(k, torch.tensor([0]))
    literal = torch.stack([rotary.rotate(q, d[None]) @ at_zero.T for d in distances]).mean()
    assert torch.isclose((rotary.mean_turn(q, distances) @ k.T)[0, 0], literal)


def test_windows_and_slopes_stand_in_the_bias() -> None:
    bias = Attention(window=2, slopes=torch.tensor([0.5], dtype=DTYPE)).bias(3)[0]
    inf = float("inf")
    assert bias.tolist() == [[0.0, -inf, -inf], [-0.5, 0.0, -inf], [-inf, -0.5, 0.0]]


def test_a_sink_takes_its_share_and_writes_nothing() -> None:
    score = torch.zeros(1, 2, 2, dtype=DTYPE)
    score[0, 0, 1] = float("-inf")
    pattern = softmax(score, torch.tensor([math.log(2.0)], dtype=DTYPE))
    assert torch.allclose(pattern[0, 0], torch.tensor([1 / 3, 0.0], dtype=DTYPE))
    assert torch.allclose(pattern[0, 1], torch.tensor([0.25, 0.25], dtype=DTYPE))
    assert float(causal_softmax(score)[0, 1, 0]) == 0.5


def test_slopes_of_eight_and_of_six_heads() -> None:
    assert alibi_slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    # Six heads: those of four, then every other one of eight.
    assert alibi_slopes(6).tolist() == [0.25, 0.0625, 2.0**-6, 2.0**-8, 0.5, 0.125]


def test_a_norm_over_all_heads_shares_one_factor() -> None:
    rows = torch.tensor([[[[3.0, 4.0]], [[0.0, 0.0]]]], dtype=DTYPE)  # two heads, one place
    gain = torch.ones(2, 2, dtype=DTYPE)
    alone = QKNorm(gain, gain, together=False, eps=0.0).factor(rows)[0, :, 0, 0]
    shared = QKNorm(gain, gain, together=True, eps=0.0).factor(rows)[0, :, 0, 0]
    assert math.isclose(float(alone[0]), 1 / math.sqrt(12.5))
    assert shared.tolist() == [0.4, 0.4]  # mean square 25 / 4


@pytest.mark.parametrize("width", [4, 7])
def test_norm_modules_tell_what_they_are(width: int) -> None:
    gain, bias = torch.arange(1.0, width + 1), torch.linspace(-1, 1, width)
    layer = torch.nn.LayerNorm(width)
    square = torch.nn.RMSNorm(width)
    with torch.no_grad():
        layer.weight.copy_(gain)
        layer.bias.copy_(bias)
        square.weight.copy_(-gain)
    read = read_norm(layer, width, "it")
    assert (read.kind, read.gain.tolist()) == ("LN", gain.tolist())
    assert torch.equal(read.bias, bias.double())
    assert read_norm(square, width, "it").kind == "RMS"
    assert read_norm(square, width, "it").gain.tolist() == (-gain).tolist()
    assert read_norm(torch.nn.Identity(), width, "it").kind == "none"


class OffsetNorm(torch.nn.Module):
    """Stores its gain less one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * (1 + self.weight)


class Clipped(torch.nn.Module):
    """No norm at all."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(-1, 0.5)


def test_a_gain_stored_less_one_is_one_more() -> None:
    read = read_norm(OffsetNorm(4), 4, "it")
    assert (read.kind, read.gain.tolist()) == ("RMS", [1.5] * 4)


def test_gains_of_zero_are_told_apart_by_name() -> None:
    layer, square = torch.nn.LayerNorm(4), torch.nn.RMSNorm(4)
    with torch.no_grad():
        layer.weight.zero_()
        square.weight.zero_()
    assert read_norm(layer, 4, "it").kind == "LN"
    assert read_norm(square, 4, "it").kind == "RMS"


def test_what_is_no_norm_is_refused() -> None:
    with pytest.raises(
        UnsupportedModelError, match="it is no LayerNorm and no RMSNorm; got Clipped"
    ):
        read_norm(Clipped(), 4, "it")
