"""Which tokens fresh associations are asked of, where not all are alike."""

from __future__ import annotations

import torch

from imir_detect._typing import Bool, Int, Tensor
from imir_detect.circuits.matched import observe
from imir_detect.circuits.probe import Probe, answers, cover
from imir_detect.circuits.relation import Relation, directly_paired
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.frame.lookups import INDUCTION, matching_contexts

HARDLY = 0.1  # share of answers that must win for the best quarter of the tokens
MOST_ASKED = 128  # tokens of which it is looked which are answered: more need too many contexts
FEWEST_RARE = 4  # unnamed tokens from which fresh associations are asked of these alone


def fresh_tokens(probe: Probe, relation: Relation) -> Int[Tensor, " asked"] | None:
    """Tokens whose associations are fresh in every sequence: those that R does not name and, where
    R is not given, that the weights pair off in no way. All (None) where too few are left."""
    fresh = torch.zeros(probe.weights.vocab_size, dtype=torch.bool)
    fresh[probe.vocabulary] = True
    fresh[relation.named] = False
    fresh[relation.partner[relation.named]] = False
    if relation.estimated:
        fresh[directly_paired(probe)] = False
    kept = fresh.nonzero()[:, 0]
    return None if len(kept) in (*range(FEWEST_RARE), len(probe.vocabulary)) else kept


def answered_tokens(
    probe: Probe, asked: Int[Tensor, " asked"] | None
) -> Int[Tensor, " asked"] | None:
    """Of the tokens asked, those that the model answers for, both as a query and as an answer, at
    least half as often as for the best quarter; `asked` itself where that leaves few, or all, or
    where even these are hardly answered.

    Tokens with a place of their own in the data (the keys and values of a directed relation) are
    never asked, or never an answer; nothing is learned from asking them.
    """
    tokens = probe.vocabulary if asked is None else asked
    if not probe.weights.same_vocabulary or not FEWEST_RARE <= len(tokens) <= MOST_ASKED:
        return asked
    first = observe(probe, INDUCTION, asked, stream=50, n=2 * probe.samples)
    cells = cover(first.score, first.contexts, probe.context)
    if len(first.within(cells).contexts) == 0:
        return asked
    contexts = matching_contexts(
        4 * probe.samples,
        probe.context,
        probe.vocabulary,
        asked=asked,
        cells=cells,
        generator=probe.generator(51),
    )
    right = answers(probe.weights, sum_paths(probe.weights, contexts.tokens), contexts)
    query = contexts.tokens[contexts.rows, contexts.query]
    keep = torch.zeros(probe.weights.vocab_size, dtype=torch.bool)
    keep[tokens] = True
    # Whether a token is answered depends on its partner in the question: those left out first
    # would make others look worse than they are.
    for _ in range(3):
        inside = keep[query] & keep[contexts.wanted]
        asking = keep.clone()
        for part in (query[inside], contexts.wanted[inside]):
            total = torch.zeros(len(keep), dtype=torch.float64).index_add_(0, part, right[inside])
            rate = total / torch.bincount(part, minlength=len(keep)).clamp(min=1)
            best = float(rate[asking].quantile(0.75))
            if best < HARDLY:
                return asked
            keep &= rate >= best / 2
        if int(keep.sum()) < 2 * FEWEST_RARE:
            return asked
    found = _one_class(keep, query, contexts.wanted, right).nonzero()[:, 0]
    return found if len(found) < len(tokens) else asked


def _one_class(
    keep: Bool[Tensor, " vocab"], query: Tensor, wanted: Tensor, right: Tensor
) -> Bool[Tensor, " vocab"]:
    """Of two classes of tokens that are answered within each but not across, the one that is
    answered more; all tokens where there are no two classes.

    Common and rare tokens are such classes where every block holds two of a kind. They are the
    signs of the leading eigenvector of the table (query, wanted) of answers about their mean,
    found on one half of the contexts and judged on the other.
    """
    inside = (keep[query] & keep[wanted]).nonzero()[:, 0]
    half = inside[: len(inside) // 2]
    table = torch.zeros(len(keep), len(keep), dtype=torch.float64)
    table.index_put_((query[half], wanted[half]), right[half] - right[half].mean(), accumulate=True)
    side = torch.linalg.eigh(table + table.T).eigenvectors[:, -1] > 0
    rest = inside[len(inside) // 2 :]
    a, b, won = side[query[rest]], side[wanted[rest]], right[rest]
    classes = [keep & side, keep & ~side]
    rates = [won[a & b], won[~a & ~b], won[a != b]]
    if min(map(len, rates)) == 0 or min(int(c.sum()) for c in classes) < 2 * FEWEST_RARE:
        return keep
    first, second, across = (float(rate.mean()) for rate in rates)
    if across > min(first, second) / 2:
        return keep
    return classes[0] if first >= second else classes[1]
