"""Models that look like a circuit and are none, or are one and do not look like it.

Kinds of mistake that users reported of tools like this one, each planted so that the right answer
is plain; what the model does when it is run stands in the comments.
"""

from typing import Any

import planted
import pytest
import torch
from planted import S

from imir_detect import Report, detect_circuits
from imir_detect.circuits.core import Circuit
from imir_detect.weights.native import ModelSpec


def named(report: Report, kind: str) -> list[Circuit]:
    return [circuit for circuit in report.circuits if circuit.kind == kind]


def role(report: Report, layer: int, head: int) -> str:
    (row,) = [r for r in report.heads if (r["layer"], r["head"]) == (layer, head)]
    return row["role"]


def rolled(model: Any, steps: int) -> Any:
    """The logits of every token moved on to the token so many places after it."""
    with torch.no_grad():
        model.unembed.weight.copy_(model.unembed.weight.roll(steps, dims=0))
    return model


# -- circuits that do not look like one ------------------------------------------------------------


def test_an_answer_that_a_later_head_passes_on_is_found() -> None:
    # L1H0 looks behind the copy and keeps what it finds; L2H0 looks at its own place and writes it.
    model = planted.empty(layers=3)
    planted.previous_token(model)
    planted.matching(model, moves=(S.token, S.second))
    planted.set_head(model, 2, 0, query=S.position, key=S.position, moves=(S.second, S.logit))
    report = detect_circuits(model)
    (circuit,) = named(report, "induction")
    assert circuit.heads == ((0, 0), (1, 0), (2, 0))
    assert ((1, 0), (2, 0), "V") in circuit.edges
    assert report.label == "icl"
    assert role(report, 1, 0) == "induction"


def test_two_previous_token_heads_in_a_row_make_a_skip() -> None:
    model = planted.empty(layers=3)
    planted.previous_token(model)
    planted.previous_token(model, 1, 0, moves=(S.first, S.second))
    planted.matching(model, 2, key=S.second)
    report = detect_circuits(model)
    (circuit,) = named(report, "skip")
    assert circuit.heads == ((0, 0), (1, 0), (2, 0))
    assert "offset 2" in circuit.note
    assert not named(report, "induction")


def test_weak_attention_that_wins_all_the_same_is_induction() -> None:
    # 5 / sqrt(14) nats: attention of a quarter or so, and yet the largest logit every time.
    model = planted.empty()
    planted.previous_token(model)
    planted.matching(model, sharpness=5.0)
    report = detect_circuits(model)
    (circuit,) = named(report, "induction")
    assert circuit.strength > 0.9
    assert role(report, 1, 0) == "induction"


def test_a_head_that_rests_on_position_0_may_do_induction() -> None:
    model = planted.induction()
    with torch.no_grad():  # 30 / sqrt(14) nats for position 0 from everywhere; a match has 16
        model.blocks[1].attn.q.bias[planted.VOCAB - 1] = 30.0
        model.blocks[1].attn.k.weight[planted.VOCAB - 1, S.position.start] = 1.0
    report = detect_circuits(model)
    assert role(report, 1, 0) == "induction"
    assert report.label == "icl"


def test_a_position_table_that_was_trained_in_part_works_in_part() -> None:
    model = planted.induction()
    with torch.no_grad():
        model.pos_embed.weight[8:] = 0
    whole, part = detect_circuits(planted.induction()), detect_circuits(model)
    (circuit,) = named(part, "induction")
    assert circuit.coverage.share < named(whole, "induction")[0].coverage.share
    assert "copies at positions" in str(circuit)


@pytest.mark.parametrize("where", ["embed", "unembed"])
def test_one_token_of_fifty_times_the_size_hides_nothing(where: str) -> None:
    model = planted.induction()
    with torch.no_grad():
        getattr(model, where).weight[0] *= 50
    report = detect_circuits(model)
    (circuit,) = named(report, "induction")
    assert circuit.heads == ((0, 0), (1, 0))
    assert circuit.strength > 0.9


# -- look-alikes -----------------------------------------------------------------------------------


def test_an_output_map_that_is_no_copy_is_no_induction() -> None:
    # Every answer is the token after the right one, as in a successor head.
    report = detect_circuits(rolled(planted.induction(), 1))
    assert report.label == "none"
    assert not named(report, "induction")
    assert [c.heads for c in named(report, "prefix_match")] == [((0, 0), (1, 0))]


def test_what_is_copied_for_few_tokens_is_not_pushed_down_for_the_others() -> None:
    model = planted.empty()
    planted.previous_token(model)
    planted.matching(model, moves=(slice(0, 3), slice(S.logit.start, S.logit.start + 3)))
    report = detect_circuits(model)
    assert report.label == "none"
    assert not named(report, "suppression")
    (circuit,) = named(report, "induction")
    assert circuit.strength < 0.5


def test_a_feeder_that_writes_where_nothing_reads_feeds_nothing() -> None:
    model = planted.empty()
    planted.previous_token(model)
    planted.matching(model, key=S.second)
    report = detect_circuits(model)
    assert [c.kind for c in report.circuits] == ["previous_token"]
    assert report.label == "none"


def test_a_head_that_avoids_the_match_is_no_circuit() -> None:
    model = planted.empty()
    planted.previous_token(model)
    planted.matching(model, sharpness=-60.0)
    report = detect_circuits(model)
    assert report.label == "none"
    assert [c.kind for c in report.circuits] == ["previous_token"]


def test_a_head_that_cancels_another_leaves_no_answer() -> None:
    model = planted.induction()
    planted.matching(model, 1, 1, gain=-1.0)
    report = detect_circuits(model)
    assert report.label == "none"
    assert role(report, 1, 1) == "suppression"
    half = planted.induction()
    planted.matching(half, 1, 1, gain=-0.5)
    report = detect_circuits(half)
    assert report.label == "icl"
    assert (role(report, 1, 0), role(report, 1, 1)) == ("induction", "suppression")


def test_a_token_that_always_wins_leaves_no_answer() -> None:
    model = planted.induction()
    with torch.no_grad():
        model.unembed.bias[5] = 5.0
    report = detect_circuits(model)
    assert report.label == "none"
    assert named(report, "prefix_match")


def test_copying_from_a_fixed_distance_or_place_is_no_induction() -> None:
    # On two periods of 7 tokens the first of these predicts every next token.
    far = planted.empty()
    planted.previous_token(far, back=6, moves=(S.token, S.logit))
    place = planted.empty()
    with torch.no_grad():
        place.blocks[0].attn.q.bias[0] = 60.0
        place.blocks[0].attn.k.weight[0, S.position.start + 3] = 1.0
    planted.set_head(place, 0, 0, query=slice(0, 0), key=slice(0, 0), moves=(S.token, S.logit))
    for model in (far, place):
        report = detect_circuits(model)
        assert report.label == "none"
        assert not named(report, "induction")


def test_a_head_that_looks_far_back_is_an_offset_head_where_enough_places_see_it() -> None:
    spec = ModelSpec(24, 24, n_layers=1, n_heads=2, d_model=96, d_head=24)
    model = spec.boot(seed=0)
    with torch.no_grad():
        for name, parameter in model.original_model.named_parameters():
            if "ln" not in name:
                parameter.zero_()
        model.embed.weight[:, :24] = torch.eye(24)
        model.pos_embed.weight[:, 24:48] = torch.eye(24)
        model.unembed.weight[:, 48:72] = torch.eye(24)
    planted.set_head(model, 0, 1, query=slice(24, 48), key=slice(24, 48), back=7)
    report = detect_circuits(model)
    (circuit,) = named(report, "offset")
    assert (circuit.heads, circuit.note) == (((0, 1),), "attends 7 back")
    assert role(report, 0, 1) == "offset"
    assert any("(every head, 15 distances)" in text for text in report.limits)
