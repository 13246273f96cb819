"""Tokens that are never said are found, and the form of the sequences in which they stand."""

import planted
import pytest
import torch
from planted import VOCAB, S

from imir_detect import detect_circuits
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import Relation
from imir_detect.circuits.separators import (
    _refined,
    _share,
    separated_lookups,
    unsaid_tokens,
)
from imir_detect.frame.contexts import Contexts
from imir_detect.frame.lookups import Lookup
from imir_detect.frame.template import Template
from imir_detect.weights.read import read_weights


def probe_of(model: object) -> Probe:
    return Probe(read_weights(model), torch.arange(VOCAB), VOCAB, 64)


def relation(pairs: dict[int, int]) -> Relation:
    partner = torch.full((VOCAB,), -1)
    for token, other in pairs.items():
        partner[token] = other
    return Relation(partner, False, torch.zeros(VOCAB))


def silent(*tokens: int) -> object:
    """Repeats what stands one back, but for tokens that it never says."""
    model = planted.empty()
    planted.previous_token(model, moves=(S.token, S.logit))
    with torch.no_grad():
        model.unembed.weight[list(tokens)] = 0.0
    return model


@torch.no_grad()
def lagged(offset: int) -> object:
    """Writes what stands `offset` behind the earlier copy of the token before the query; tokens 0
    and 1 are never said."""
    model = planted.empty()
    # The token before each place, and at every place the one that stood `offset` before it.
    planted.previous_token(model, moves=(S.token, S.first))
    planted.previous_token(model, head=1, back=offset, moves=(S.token, S.second))
    planted.set_head(
        model, 1, 0, query=S.first, key=S.second, moves=(S.token, S.logit), sharpness=60.0
    )
    model.unembed.weight[:2] = 0.0
    return model


def test_tokens_that_are_never_on_top_are_unsaid() -> None:
    nobody = relation({})
    assert unsaid_tokens(probe_of(silent(3, 8)), nobody).tolist() == [3, 8]
    assert unsaid_tokens(probe_of(silent()), nobody).tolist() == []


def test_many_silent_tokens_or_tokens_of_the_relation_are_no_separators() -> None:
    assert (
        unsaid_tokens(probe_of(silent(0, 1, 2, 3)), relation({})).tolist() == []
    )  # over a quarter
    assert unsaid_tokens(probe_of(silent(3, 8)), relation({3: 5})).tolist() == []
    assert unsaid_tokens(probe_of(silent(3, 8)), relation({5: 8})).tolist() == []


def test_without_separators_no_lookup_is_asked() -> None:
    assert separated_lookups(probe_of(silent()), torch.tensor([], dtype=torch.long)) == []


def test_repeating_by_place_is_no_answer_however_separators_stand() -> None:
    report = detect_circuits(silent(3, 8))
    assert report.label == "none"
    assert {c.kind for c in report.circuits} == {"previous_token"}


@pytest.mark.parametrize("offset", [2, 1])
def test_an_answer_asked_at_a_separator_is_found_with_the_form(offset: int) -> None:
    model = lagged(offset)
    probe = probe_of(model)
    assert unsaid_tokens(probe, relation({})).tolist() == [0, 1]
    found = separated_lookups(probe, torch.tensor([0, 1]))
    asked = [lookup for lookup in found if lookup.lag == 1]
    assert [lookup.offset for lookup in asked] == [offset]
    assert asked[0].template is not None
    assert asked[0].template.separators == (0, 1)


def test_a_skip_asked_at_a_separator_answers_from_the_context() -> None:
    report = detect_circuits(lagged(1))
    (skip,) = [c for c in report.circuits if c.kind == "skip"]
    assert skip.heads == ((0, 0), (0, 1), (1, 0))
    assert skip.strength > 0.9
    assert skip.lookup is not None
    assert skip.lookup.lag == 1
    assert "offset 1, asked one place later, with tokens 0, 1 at places" in skip.note
    assert report.label == "icl"


def test_what_is_answered_without_separators_is_not_asked_with_them() -> None:
    """Two behind the copy of the token before is one behind the copy of both: a prefix of two."""
    report = detect_circuits(lagged(2))
    assert {c.kind for c in report.circuits if c.in_context} == {"induction_long_prefix"}


def test_separators_are_kept_where_answers_come_with_them() -> None:
    """200 questions; at place 1 the answer needs token 1, at place 3 either will do."""
    first = torch.tensor([0, 1] * 100)
    second = torch.tensor([0, 0, 1, 1] * 50)
    tokens = torch.stack([torch.full((200,), 9), first, torch.full((200,), 8), second], 1)
    places = torch.full((200,), 3)
    contexts = Contexts(tokens, places, torch.zeros(200).long(), tokens[:, 2])
    template = _refined(Template((0, 1), 2, 1), contexts, first.double())
    assert template.allowed == ((1,), (0, 1))
    assert _share(first.double(), contexts) == 0.5


def test_a_form_is_words() -> None:
    template = Template((0, 1), 3, 0)
    assert str(Lookup(prefix=2, template=template)) == (
        "prefix of 2, with tokens 0, 1 at places 0, 3, ..."
    )
