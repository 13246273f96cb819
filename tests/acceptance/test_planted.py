"""Planted circuits are found and named, look-alikes are not taken for them.

Each model's heads do what the test says (see `planted`); the answer is what a careful user expects.
"""

from typing import Any

import planted
import pytest
import torch
from planted import S

from imir_detect import Report, detect_circuits
from imir_detect.circuits.core import Circuit


def named(report: Report, kind: str) -> list[Circuit]:
    return [circuit for circuit in report.circuits if circuit.kind == kind]


def role(report: Report, layer: int, head: int) -> str:
    (row,) = [r for r in report.heads if (r["layer"], r["head"]) == (layer, head)]
    return row["role"]


@pytest.mark.parametrize(
    "spec",
    [{}, {"heads": 1}, {"layers": 3}, {"norm": "LN"}, {"norm": "RMS"}, {"norm": "LNPre"}],
    ids=str,
)
def test_induction_is_found_with_both_its_heads(spec: dict[str, Any]) -> None:
    report = detect_circuits(planted.induction(**spec))
    (circuit,) = named(report, "induction")
    assert circuit.heads == ((0, 0), (1, 0))
    assert circuit.strength > 0.9
    assert ((0, 0), (1, 0), "K") in circuit.edges
    assert ((1, 0), "output", "out") in circuit.edges
    assert set(circuit.effects) == {"shift", "match", "copy"}
    assert report.label == "icl"
    assert role(report, 0, 0) == "previous_token"
    assert role(report, 1, 0) == "induction"


def test_the_match_effect_is_the_planted_one() -> None:
    # Query and key agree at 60 / sqrt(d_head) nats against 0 elsewhere: attention-only, no norm.
    (circuit,) = named(detect_circuits(planted.induction()), "induction")
    assert circuit.effects["match"] == pytest.approx(60 / planted.VOCAB**0.5, rel=0.05)
    assert circuit.effects["copy"] == pytest.approx(1.0, rel=0.05)


def test_a_layer_may_be_skipped() -> None:
    model = planted.empty(layers=3)
    planted.previous_token(model, 0, 1)
    planted.matching(model, 2, 1)
    (circuit,) = named(detect_circuits(model), "induction")
    assert circuit.heads == ((0, 1), (2, 1))


@pytest.mark.parametrize(
    ("previous", "match"), [((0, 0), (0, 1)), ((1, 0), (0, 0))], ids=["same layer", "reversed"]
)
def test_right_pieces_in_the_wrong_layers_are_no_circuit(previous: Any, match: Any) -> None:
    model = planted.empty()
    planted.previous_token(model, *previous)
    planted.matching(model, *match)
    report = detect_circuits(model)
    assert report.label == "none"
    assert not [c for c in report.circuits if c.kind == "induction" and c.works]
    assert role(report, *previous) == "previous_token"


def test_a_job_split_over_two_feeders_is_one_circuit() -> None:
    model = planted.empty()
    planted.previous_token(model, 0, 0, only=slice(1, None, 2))
    planted.previous_token(model, 0, 1, only=slice(2, None, 2))
    planted.matching(model)
    (circuit,) = named(detect_circuits(model), "induction")
    assert circuit.heads == ((0, 0), (0, 1), (1, 0))
    assert circuit.strength > 0.9


def test_redundant_heads_are_all_listed() -> None:
    model = planted.empty()
    planted.previous_token(model, 0, 0)
    planted.previous_token(model, 0, 1)
    planted.matching(model, 1, 0)
    planted.matching(model, 1, 1)
    (circuit,) = named(detect_circuits(model), "induction")
    assert circuit.heads == ((0, 0), (0, 1), (1, 0), (1, 1))


def test_a_duplicate_token_head_is_not_induction() -> None:
    model = planted.empty()
    planted.previous_token(model)
    planted.matching(model, key=S.token)  # looks for its own token, one place too early
    report = detect_circuits(model)
    assert report.label == "none"
    assert not named(report, "induction")
    (duplicate,) = named(report, "duplicate_token")
    assert duplicate.heads == ((1, 0),)
    assert role(report, 1, 0) == "duplicate_token"
    (row,) = [r for r in report.heads if (r["layer"], r["head"]) == (1, 0)]
    assert row["copying"] == 1.0
    assert row["induction"] < 0.1


def test_a_previous_token_head_that_writes_logits_is_not_induction() -> None:
    model = planted.empty()
    planted.previous_token(model, moves=(S.token, S.logit))
    report = detect_circuits(model)
    assert report.label == "none"
    assert not named(report, "induction")
    assert [c.heads for c in named(report, "previous_token")] == [((0, 0),)]


def test_matching_that_copies_nothing_is_prefix_matching() -> None:
    model = planted.empty()
    planted.previous_token(model)
    planted.matching(model, moves=(S.token, S.second))
    report = detect_circuits(model)
    (circuit,) = named(report, "prefix_match")
    assert circuit.heads == ((0, 0), (1, 0))
    assert report.label == "none"
    assert "copies nothing" in circuit.note


def test_copying_with_a_negative_sign_is_suppression() -> None:
    model = planted.empty()
    planted.previous_token(model)
    planted.matching(model, gain=-1.0)
    report = detect_circuits(model)
    (circuit,) = named(report, "suppression")
    assert circuit.effects["copy"] < 0
    assert not named(report, "induction")
    assert report.label == "none"
    (row,) = [r for r in report.heads if (r["layer"], r["head"]) == (1, 0)]
    assert (row["copying"], row["suppression"]) == (0.0, 1.0)


def test_looking_two_back_is_an_offset_head_and_a_skip_circuit() -> None:
    model = planted.empty()
    planted.previous_token(model, back=2)
    planted.matching(model)
    report = detect_circuits(model)
    (skip,) = named(report, "skip")
    assert skip.heads == ((0, 0), (1, 0))
    assert "offset 2" in skip.note
    assert not named(report, "induction")
    assert not named(report, "previous_token")
    assert role(report, 0, 0) == "offset"
    assert report.label == "none"


def test_a_copied_position_plus_one_is_pointer_induction() -> None:
    model = planted.empty()
    planted.set_head(model, 0, 0, query=S.token, key=S.token, moves=(S.position, S.first))
    planted.set_head(model, 1, 0, query=S.first, key=S.position, back=-1, moves=(S.token, S.logit))
    report = detect_circuits(model)
    (circuit,) = named(report, "pointer_induction")
    assert ((0, 0), (1, 0), "Q") in circuit.edges
    assert ((0, 0), (1, 0), "K") not in circuit.edges
    assert not named(report, "induction")
    assert report.label == "icl"


def test_two_hops_are_one_circuit_of_three_heads() -> None:
    # Blocks of two: only odd places hold the token before, so that "one back" stays in its block.
    model = planted.empty(layers=3)
    planted.previous_token(model, only=slice(1, None, 2))
    planted.matching(model, 1, moves=(S.token, S.second))
    planted.set_head(model, 2, 0, query=S.second, key=S.first, moves=(S.token, S.logit))
    report = detect_circuits(model)
    (circuit,) = named(report, "k_hop")
    assert circuit.heads == ((0, 0), (1, 0), (2, 0))
    assert circuit.hops == 2
    assert circuit.strength > 0.9
    heads = {str(edge) for edge in circuit.edges if edge.source != "embed"}
    assert heads == {
        "L0H0 -K-> L1H0",
        "L0H0 -K-> L2H0",
        "L1H0 -Q-> L2H0",
        "L2H0 -out-> output",
    }
    assert not named(report, "induction")
    assert not named(report, "prefix_match")
    assert (role(report, 1, 0), role(report, 2, 0)) == ("induction", "induction")
    assert report.label == "icl"


@torch.no_grad()
def two_token_match(model: Any) -> None:
    """L1H0 scores 60 for its token behind the query's, and 60 more if the ones before agree."""
    attention = model.blocks[1].attn
    for i in range(planted.VOCAB):
        for k, (query, key) in enumerate(((S.token, S.first), (S.first, S.second))):
            attention.q.weight[k * planted.VOCAB + i, query.start + i] = 60.0
            attention.k.weight[k * planted.VOCAB + i, key.start + i] = 1.0
        attention.v.weight[i, S.token.start + i] = 1.0
        attention.o.weight[S.logit.start + i, i] = 1.0


def test_a_longer_prefix_is_told_from_plain_induction() -> None:
    model = planted.empty(d_head=2 * planted.VOCAB)
    planted.previous_token(model)
    planted.previous_token(model, 0, 1, back=2, moves=(S.token, S.second))
    two_token_match(model)
    report = detect_circuits(model)
    (circuit,) = named(report, "induction_long_prefix")
    assert circuit.heads == ((0, 0), (0, 1), (1, 0))
    assert circuit.strength > 0.9
    # One token is enough where only one copy stands in the context.
    (plain,) = named(report, "induction")
    assert plain.heads == ((0, 0), (1, 0))
    assert not named(detect_circuits(planted.induction()), "induction_long_prefix")


def test_the_token_before_an_earlier_copy_is_backward_retrieval() -> None:
    # L0H0 marks every place with the token before; L1H0 looks at the copy and writes its mark.
    model = planted.empty()
    planted.previous_token(model)
    planted.set_head(model, 1, 0, query=S.token, key=S.token, moves=(S.first, S.logit))
    report = detect_circuits(model)
    (circuit,) = named(report, "backward_retrieval")
    assert circuit.heads == ((0, 0), (1, 0))
    assert ((0, 0), (1, 0), "V") in circuit.edges
    assert not named(report, "induction")
    assert role(report, 1, 0) == "backward_retrieval"


def test_an_association_is_found_given_and_estimated() -> None:
    pairs = {token: token ^ 1 for token in range(planted.VOCAB)}
    model = planted.association(pairs)
    for relation in (pairs, None):
        report = detect_circuits(model, relation=relation)
        (circuit,) = named(report, "in_weights")
        assert circuit.strength == 1.0
        assert circuit.heads == ()
        assert report.label == "iwl"
        assert dict(map(tuple, report.meta["relation"]["pairs"])) == pairs


def test_a_wrong_relation_is_not_confirmed() -> None:
    model = planted.association({token: token ^ 1 for token in range(planted.VOCAB)})
    wrong = {token: (token + 2) % planted.VOCAB for token in range(planted.VOCAB)}
    report = detect_circuits(model, relation=wrong)
    assert report.label == "none"


def test_a_sink_is_a_sink() -> None:
    model = planted.empty()
    with torch.no_grad():
        model.blocks[0].attn.q.bias[0] = 60
        model.blocks[0].attn.k.weight[0, S.position.start] = 1
    report = detect_circuits(model)
    (sink,) = named(report, "position_sink")
    assert sink.heads == ((0, 0),)
    assert role(report, 0, 0) == "position_sink"
    assert not named(report, "previous_token")


def test_dead_heads_give_a_warning_and_no_number_that_is_not_finite() -> None:
    model = planted.induction()
    with torch.no_grad():
        for name in ("k", "v"):
            getattr(model.blocks[1].attn, name).weight.zero_()
    report = detect_circuits(model)
    assert "W_K and W_V of layer 1 are all zero - was the checkpoint loaded?" in report.warnings
    assert report.label == "none"
    assert not named(report, "induction")
    assert named(report, "previous_token")
    blank = detect_circuits(planted.empty())
    assert blank.label == "none"
    assert not blank.circuits
    for table in (report.coordinates, blank.coordinates):
        assert all(v == v for name in ("effect", "cosine") for v in table.column(name))


def test_rescaled_and_rotated_factors_change_nothing() -> None:
    model, plain = planted.induction(), detect_circuits(planted.induction())
    generator = torch.Generator().manual_seed(0)
    width = model.cfg.d_head
    with torch.no_grad():
        for block in model.blocks:
            for head in range(2):
                rows = slice(head * width, (head + 1) * width)
                turn = torch.linalg.qr(torch.randn(width, width, generator=generator))[0]
                a = block.attn
                a.q.weight[rows] = 1e-3 * turn @ a.q.weight[rows]
                a.k.weight[rows] = 1e3 * turn @ a.k.weight[rows]
                a.v.weight[rows] = 1e3 * turn @ a.v.weight[rows]
                a.o.weight[:, rows] = 1e-3 * a.o.weight[:, rows] @ turn.T
    report = detect_circuits(model)
    assert [c.kind for c in report.circuits] == [c.kind for c in plain.circuits]
    for got, wanted in zip(report.coordinates, plain.coordinates, strict=True):
        assert got["effect"] == pytest.approx(wanted["effect"], abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_gives_the_same_label(dtype: torch.dtype) -> None:
    report = detect_circuits(planted.induction().to(dtype))
    assert report.label == "icl"
    assert [c.heads for c in named(report, "induction")] == [((0, 0), (1, 0))]


def test_another_output_vocabulary_leaves_attention_readable() -> None:
    from dataclasses import replace

    from imir_detect import read_weights

    weights = read_weights(planted.induction())
    report = detect_circuits(replace(weights, W_U=weights.W_U[:, :3], b_U=weights.b_U[:3]))
    assert report.heads.column("copying") == [None] * 4
    assert named(report, "previous_token")
    assert any("vocabularies differ" in text for text in report.limits)


def test_one_position_or_two_are_said_to_be_too_few() -> None:
    from dataclasses import replace

    from imir_detect import read_weights

    weights = read_weights(planted.induction())
    report = detect_circuits(replace(weights, W_pos=weights.W_pos[:2]))
    assert report.label == "none"
    assert any("coincide" in text for text in report.limits)
    assert set(report.heads.column("role")) == {"none"}
