"""Ours: edge effects read from weights alone; the ablation enters as the reference.

The method is told which behaviour is asked (`case.question`) and draws its own contexts: a random
context with a match, without data of the task. Where the question is what stands behind a match,
the places at which the model answers are found first, as `detect_circuits` finds them.
"""

from __future__ import annotations

import torch

from imir_detect._typing import Int, Tensor
from imir_detect.benchmark.cases import Case, Question
from imir_detect.benchmark.contract import Budget, Scores, everything, method
from imir_detect.benchmark.methods.imir_units import unit_scores
from imir_detect.benchmark.reading import edge_effects
from imir_detect.circuits.matched import FEWEST
from imir_detect.circuits.probe import Probe, answers, cover
from imir_detect.coordinates.pathsum import Trace, sum_paths
from imir_detect.frame.contexts import Contexts, asking_contexts, distinct_tokens
from imir_detect.frame.lookups import matching_contexts

MOST = 64  # positions of a context


@method(
    "imir",
    about="edge effects read from weights (this package)",
    sees="weights",
    supports=everything,
)
def imir(case: Case, *, budget: Budget) -> Scores:
    """Nats that every edge brings to the answer, softmax by softmax."""
    w = case.weights
    vocabulary = torch.arange(min(case.task.vocab_size, w.vocab_size))
    length = min(w.n_ctx, MOST, len(vocabulary))
    probe = Probe(w, vocabulary, length, samples=budget.samples, seed=budget.seed)
    contexts, trace, against = own_contexts(probe, case.question)
    effects = case.question.sign * edge_effects(w, trace, contexts, against, case.ablation)
    if case.granularity == "unit":
        return Scores(unit_scores(case, trace, effects, seed=budget.seed))
    values = case.to_items(effects)
    return Scores(values, signed=values, note="contexts of its own, no task data")


def own_contexts(probe: Probe, question: Question) -> tuple[Contexts, Trace, Tensor | None]:
    """Contexts for a question, the paths summed on them, and the tokens that compete with the
    answer (None: all)."""
    if question.kind == "behind":
        return _behind(probe, question)
    g, n, length = probe.generator(60), probe.samples, probe.context
    if question.kind == "partner":
        assert question.relation is not None
        named = (question.relation >= 0).nonzero()[:, 0]
        query = named[torch.randint(len(named), (n,), generator=g)]
        last = torch.tensor([length - 1])
        made = asking_contexts(
            query, question.relation[query], length, probe.vocabulary, places=last, generator=g
        )
        return made, sum_paths(probe.weights, made.tokens), None
    tokens = distinct_tokens(n, length, probe.vocabulary, generator=g)
    rows = torch.arange(n)
    query = torch.randint(question.back + 1, length, (n,), generator=g)
    match = torch.full((n,), -1)
    if question.kind == "own":
        match = (torch.rand(n, generator=g) * query).long()
        tokens[rows, query] = tokens[rows, match]
        wanted = tokens[rows, query]
    else:
        wanted = tokens[rows, query - question.back if question.kind == "back" else 0]
    made = Contexts(tokens, query, match, wanted)
    return made, sum_paths(probe.weights, tokens), None


def _behind(probe: Probe, question: Question) -> tuple[Contexts, Trace, Int[Tensor, "n m"]]:
    """Contexts at the places where the model answers, as many as other methods have prompts: the
    first n, where it answers on all of them; else the places are chosen on 2 n."""
    n = max(FEWEST, probe.samples)
    asked = None if question.asked is None else torch.arange(question.asked)
    drawn = matching_contexts(
        2 * n,
        probe.context,
        probe.vocabulary,
        question.lookup,
        asked=asked,
        generator=probe.generator(20),
    )
    first = torch.arange(min(n, len(drawn)))
    contexts = drawn.select(first)
    trace = sum_paths(probe.weights, contexts.tokens)
    right = answers(probe.weights, trace, contexts)
    # What is pushed down is pushed down everywhere.
    if question.sign > 0 and not right.all():
        others = drawn.select(torch.arange(len(first), len(drawn)))
        rest = answers(probe.weights, sum_paths(probe.weights, others.tokens), others)
        cells = cover(torch.cat([right, rest]), drawn, probe.context)
        kept = cells[drawn.query, drawn.match].nonzero()[:, 0][:n]
        contexts = drawn.select(kept if len(kept) >= FEWEST else first)
        trace = sum_paths(probe.weights, contexts.tokens)
    visible = torch.arange(probe.context) <= contexts.query[:, None]
    visible &= contexts.tokens != contexts.wanted[:, None]
    own = contexts.tokens[contexts.rows, contexts.query][:, None]
    return contexts, trace, torch.where(visible, contexts.tokens, own)
