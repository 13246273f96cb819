"""R of a deep model, from the extended read-out: what its mean logits name, token by token."""

from __future__ import annotations

import torch

from imir_detect.circuits.relation import CLEAR, CONFIRMED, LEAST_SHARE, Relation, outlier
from imir_detect.coordinates.extended import Extended
from imir_detect.linalg import DTYPE
from imir_detect.weights.model import ModelWeights


def extended_relation(weights: ModelWeights, extended: Extended) -> Relation:
    """R from the extended read-out: a token's partner leads its row's mean logit by more than the
    largest of as many normal draws would at chance `CLEAR`, in either half of the contexts. No more
    such partners than chance (tokens that share one count once: a long column of the unembedding
    leads many rows), or tokens: no relation."""
    partner = torch.full((weights.vocab_size,), -1)
    margin = torch.zeros(weights.vocab_size, dtype=DTYPE)
    if weights.same_vocabulary:
        bar = outlier(torch.tensor([weights.vocab_out - 2]), CLEAR)
        lead = (extended.lead - bar * extended.spread).amin(0)
        kept = (extended.named[0] == extended.named[1]) & (lead > 0)
        count, size = int(kept.sum()), len(kept)
        chance = torch.tensor(1 - CLEAR, dtype=DTYPE)
        law = torch.distributions.Binomial(size, chance)
        different = len(set(extended.named[0][kept].tolist()))
        values = torch.arange(different, size + 1, dtype=DTYPE)
        tail = law.log_prob(values).exp().sum()  # type: ignore[no-untyped-call]
        if count >= LEAST_SHARE * size and float(tail) < CONFIRMED:
            tokens = extended.tokens[kept]
            partner[tokens] = extended.named[0][kept]
            margin[tokens] = lead[kept]
    return Relation(partner, True, margin)
