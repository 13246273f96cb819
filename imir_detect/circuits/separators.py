"""Separators, and the lookups that a model answers where they stand as in its own sequences.

Tokens that a model never says, though it says every other one, have a place of their own in its
data: conditions, arrows, the words between two names. Random contexts show them anywhere, which
the model has never seen. Here they are put at every second, third or fourth place instead, and
where the model answers lookups best is taken for the form of its sequences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from imir_detect._typing import Int, Tensor
from imir_detect.circuits.asking import MOST_ASKED
from imir_detect.circuits.core import WORKS
from imir_detect.circuits.matched import FEWEST
from imir_detect.circuits.probe import Probe, answers, cover
from imir_detect.circuits.relation import Relation
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.frame.contexts import Contexts, distinct_tokens
from imir_detect.frame.lookups import Lookup, matching_contexts
from imir_detect.frame.template import Template

OFTEN = 20  # how often every token would be said by its share, from which never is a sign
MOST = 8  # separators
MOST_SHARE = 0.25  # of the vocabulary
PERIODS = (2, 3, 4)
LAGGED = (2, -2, 1, -1)  # offsets asked where the query is a separator
SCREENED = 96  # contexts of one form
REFINED = 512  # contexts from which the separators of each place are chosen


def unsaid_tokens(probe: Probe, relation: Relation) -> Int[Tensor, " unsaid"]:
    """Tokens that stand on top after no prefix of random contexts, though others do; none where
    these are many, or where R names them (keys of a directed relation are never answers)."""
    weights, vocabulary = probe.weights, probe.vocabulary
    nobody = vocabulary[:0]
    if not weights.same_vocabulary or len(vocabulary) > MOST_ASKED or probe.context < 3:
        return nobody
    n = -(-OFTEN * len(vocabulary) // (probe.context - 2))
    tokens = distinct_tokens(n, probe.context, vocabulary, generator=probe.generator(81))
    final = sum_paths(weights, tokens).final[:, 2:].flatten(0, 1)
    said = (final @ weights.W_U + weights.b_U).argmax(-1)
    never = vocabulary[torch.bincount(said, minlength=weights.vocab_size)[vocabulary] == 0]
    named = torch.cat([relation.named, relation.partner[relation.named]])
    if len(never) > min(MOST, MOST_SHARE * len(vocabulary)) or torch.isin(never, named).any():
        return nobody
    return never


def separated_lookups(probe: Probe, unsaid: Int[Tensor, " unsaid"]) -> list[Lookup]:
    """The lookups that the model answers more often than not, at their best places, with separators
    in the form in which it answers one of them best."""
    if len(unsaid) == 0:
        return []
    shares: dict[Template, dict[Lookup, float]] = {}
    for lookup in _forms(probe, tuple(unsaid.tolist())):
        contexts = _contexts(probe, lookup, SCREENED)
        if len(contexts) >= FEWEST and lookup.template is not None:
            won = shares.setdefault(lookup.template, {})
            won[lookup] = _share(_answered(probe, contexts), contexts)
    form = max(shares, key=lambda template: max(shares[template].values()), default=None)
    if form is None:
        return []
    answered = {k: share for k, share in shares[form].items() if share > WORKS}
    if not answered:
        return []
    contexts = _contexts(probe, max(answered, key=lambda k: answered[k]), REFINED)
    template = _refined(form, contexts, _answered(probe, contexts))
    return [replace(lookup, template=template) for lookup in answered]


def _forms(probe: Probe, separators: tuple[int, ...]) -> Iterator[Lookup]:
    """Every place of the separators, with every lookup that fits into the context."""
    for period in PERIODS:
        for start in range(period):
            for lookup in _lookups(Template(separators, period, start)):
                if probe.context >= lookup.least and lookup.cells(probe.context).any():
                    yield lookup


def _lookups(template: Template) -> Iterator[Lookup]:
    yield Lookup(template=template)
    if len(template.separators) > 1:
        yield Lookup(prefix=2, template=template)
    for offset in LAGGED:
        yield Lookup(offset, lag=1, template=template)


def _contexts(probe: Probe, lookup: Lookup, n: int) -> Contexts:
    return matching_contexts(
        n, probe.context, probe.vocabulary, lookup, generator=probe.generator(80)
    )


def _answered(probe: Probe, contexts: Contexts) -> Tensor:
    return answers(probe.weights, sum_paths(probe.weights, contexts.tokens), contexts)


def _share(right: Tensor, contexts: Contexts) -> float:
    """Share of answers at the best places."""
    cells = cover(right, contexts, contexts.tokens.shape[1])
    inside = cells[contexts.query, contexts.match]
    return float(right[inside].mean()) if int(inside.sum()) >= FEWEST else 0.0


def _refined(template: Template, contexts: Contexts, right: Tensor) -> Template:
    """The template with, at each of its places, the separators that answers come with nearly as
    often as with the best one."""
    cells = cover(right, contexts, contexts.tokens.shape[1])
    inside = cells[contexts.query, contexts.match]
    tokens, right = contexts.tokens[inside], right[inside]
    allowed = []
    for place in template.places(tokens.shape[1]).nonzero()[:, 0].tolist():
        won = {s: right[tokens[:, place] == s] for s in template.separators}
        best = max(float(r.mean()) for r in won.values() if len(r))
        error = 0.5 / (len(tokens) / len(won)) ** 0.5
        allowed.append(tuple(s for s, r in won.items() if float(r.mean()) >= best - 2 * error))
    return replace(template, allowed=tuple(allowed))
