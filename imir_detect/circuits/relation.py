"""The relation R: given by the user, or estimated from the weights.

Estimation needs two pieces of evidence that share no weights. The *extended read-out* (the logits
at a token, averaged over random contexts that do not hold its partner, all paths summed) is split
into a part (the direct path, one layer's heads, or one layer's MLP) and all the rest. In a fresh
model the two name the same partner by chance for one token or so, for a few where both favour the
same tokens; an association that training has made makes them agree for many. All tables are centred
over tokens and over partners first: a token that is likely everywhere is nobody's partner. The
identity is never R.

Where part and rest agree for more tokens than chance allows, the tokens in question show at which
places of the context the model answers. There, on contexts drawn anew, they must agree beyond doubt
(one fresh model in a thousand may pass the first test, and training sharpens what stands at the
places that it asked about). Tokens that either names clearly are counted apart as well: in a fresh
model an entry that leads its row by far is no likelier to be named twice. Then each token's partner
is read, and it counts when its entry beats the extreme-value null of its own row (the largest of
V - 1 draws at the row's measured spread, median), contexts drawn anew name it again, and two parts
name it too, or the pair is mutual, or its entry is clear and no other token names that partner.
Where MLPs write the association the parts miss it; clear mutual pairs over many tokens then stand
in for the first step. (Mutual alone says nothing where embedding and unembedding are tied: in a
symmetric table of random entries half of the tokens are.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Bool, Float, Int
from imir_detect.circuits.probe import NEAR_BEST, Probe, resolution
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.frame.contexts import distinct_tokens
from imir_detect.linalg import DTYPE, ROUNDOFF

CHANCE = 1e-3  # at which as many tokens agree without an association
CONFIRMED = 1e-6  # the same where it is confirmed: thousands of models are read
LEAST_SHARE = 0.1  # of the tokens, that must agree
CLEAR = 0.95  # chance that a row without association stays below its clear entry
DRAWS = 3  # contexts per token in each half of the read-out
MOST_CONTEXTS = 512
MOST_TOKENS = 512  # tokens whose read-out is taken; of more, a seeded sample


@dataclass(frozen=True)
class Relation:
    """A relation on tokens: `partner` (vocab), -1 for none; given, or estimated from weights.

    `margin` (vocab), where estimated: nats by which a token's partner beats the null of its row.
    """

    partner: Int[Tensor, " vocab"]
    estimated: bool
    margin: Float[Tensor, " vocab"] | None = None

    @property
    def named(self) -> Int[Tensor, " named"]:
        """Tokens that have a partner."""
        return (self.partner >= 0).nonzero()[:, 0]

    @property
    def coverage(self) -> float:
        """Share of the vocabulary that is named."""
        return len(self.named) / len(self.partner)

    def pairs(self, most: int | None = None) -> list[tuple[int, int]]:
        """(token, partner), by strength of the evidence where it was estimated."""
        named = self.named
        if self.margin is not None:
            named = named[self.margin[named].argsort(descending=True)]
        return [(int(t), int(self.partner[t])) for t in named[:most]]


def estimate_relation(probe: Probe) -> Relation:
    """R as the module's text says; all -1 where the evidence does not reach."""
    weights = probe.weights
    partner = torch.full((weights.vocab_size,), -1)
    margin = torch.zeros(weights.vocab_size, dtype=DTYPE)
    tokens = probe.vocabulary
    if weights.same_vocabulary and probe.context >= 2 and len(tokens) >= 4:
        if len(tokens) > MOST_TOKENS:
            order = torch.randperm(len(tokens), generator=probe.generator(1))
            tokens = tokens[order[:MOST_TOKENS]].sort().values
        first, second = (_ReadOut.take(probe, tokens, stream=stream) for stream in (2, 3))
        kept, best, excess = _pairs(first, second)
        partner[tokens[kept]] = tokens[best[kept]]
        margin[tokens[kept]] = excess[kept]
    return Relation(partner, True, margin)


def directly_paired(probe: Probe) -> Int[Tensor, " paired"]:
    """Tokens that the direct path pairs off, each with one that it pairs back; none where they are
    no more than chance.

    Such an association need not rule: a model that learned to answer from the context keeps it.
    It tells which tokens are common, so that fresh associations can be asked of the others.
    """
    weights, tokens = probe.weights, probe.vocabulary
    nobody = tokens[:0]
    if not weights.same_vocabulary or not 4 <= len(tokens) <= MOST_TOKENS:
        return nobody
    best = _centred(weights.W_E[tokens] @ weights.W_U[:, tokens]).argmax(1)
    mutual = _mutual(best)
    return tokens[mutual] if _more_than_chance(mutual, together=2) else nobody


def _pairs(first: _ReadOut, second: _ReadOut) -> tuple[Tensor, Tensor, Tensor]:
    """Which tokens count, each token's partner and by how many nats it beats its row's null."""
    size = first.logits.shape[-1]
    seeds, partner = _seeds(first, second)
    if not seeds.any():
        return seeds, partner, torch.zeros(size, dtype=DTYPE)
    places = first.places_that_answer(seeds, partner)
    table = first.table(places)
    best = table.argmax(1)
    excess = table.amax(1) - row_null(table, best) - first.floor
    # A second piece of evidence for each token: two parts of the model, the partner's own answer,
    # or, for a directed relation, a clear entry whose partner no other token names.
    clear = table.amax(1) > row_null(table, best, level=CLEAR)
    alone = torch.bincount(best[excess > 0], minlength=size)[best] == 1
    agreed = (seeds & (partner == best)) | _mutual(best) | (clear & alone)
    kept = (excess > 0) & agreed & (second.table(places).argmax(1) == best)
    return kept & _more_than_chance(kept), best, excess


def _seeds(
    first: _ReadOut, second: _ReadOut
) -> tuple[Bool[Tensor, " tokens"], Int[Tensor, " tokens"]]:
    """Tokens of which it is known that they are associated, and their partners: those on which
    parts of the model agree, and agree beyond doubt on other contexts where it answers; else clear
    mutual pairs of the whole read-out, which need no part of their own."""
    everywhere = torch.arange(1, first.asked.shape[1])
    seeds, partner = _agreeing_parts(first, everywhere)
    if seeds.any():
        places = first.places_that_answer(seeds, partner)
        if _agreeing_parts(second, places, level=CONFIRMED)[0].any():
            return seeds, partner
    table = first.table(everywhere)
    partner = table.argmax(1)
    seeds = _mutual(partner) & (table.amax(1) > row_null(table, partner, level=CLEAR))
    return seeds & _more_than_chance(seeds, together=2, chance=1 - CLEAR), partner


def _agreeing_parts(
    read_out: _ReadOut, places: Int[Tensor, " places"], *, level: float = CHANCE
) -> tuple[Bool[Tensor, " tokens"], Int[Tensor, " tokens"]]:
    """Tokens for which a part of the model and all the rest of it name the same partner, and that
    partner. Of several parts (the direct path, each layer's heads, each MLP) the one that agrees on
    most partners (tokens that all name one partner are a habit, no association); none where tokens,
    or those that one of the two names clearly, are no more than chance, over all parts tried."""
    whole = read_out.table(places)
    parts = [read_out.table(places, part=k) for k in range(len(read_out.parts))]
    best, most = (torch.zeros(len(whole), dtype=torch.bool), whole.argmax(1)), 0
    chance, clear = 0.0, best[0]
    for part in parts:
        rest = _centred((whole - part).fill_diagonal_(float("nan")))
        named, other = part.argmax(1), rest.argmax(1)
        # Where a part is all there is, the rest is round-off and agrees with nothing.
        agree = (named == other) & (rest.amax(1) > ROUNDOFF * whole.amax(1).abs())
        agree &= part.amax(1) > ROUNDOFF * whole.amax(1).abs()
        partners = len(torch.unique(named[agree]))
        if partners > most:
            best, most, chance = (agree, named), partners, _meeting(named, other)
            clear = (part.amax(1) > row_null(part, named, level=CLEAR)) | (
                rest.amax(1) > row_null(rest, other, level=CLEAR)
            )
    tries = 2 * len(parts)
    enough = _more_than_chance(best[0], tries=tries, chance=chance, level=level)
    # Without an association, how far an entry leads its row says nothing of which one it is.
    both = chance * (1 - CLEAR**2)
    enough |= _more_than_chance(best[0] & clear, tries=tries, chance=both, level=level)
    return best[0] & enough, best[1]


def _meeting(named: Int[Tensor, " tokens"], other: Int[Tensor, " tokens"]) -> float:
    """Chance that two tables name the same partner for one token when the rows of one are permuted:
    sum over partners of the two shares of tokens that name it, and never less than one in all."""
    size = len(named)
    shares = [torch.bincount(x, minlength=size).to(DTYPE) / size for x in (named, other)]
    return max(float(shares[0] @ shares[1]), 1 / (size - 1))


def _mutual(partner: Int[Tensor, " tokens"]) -> Bool[Tensor, " tokens"]:
    """Tokens whose partner's partner they are."""
    return partner[partner] == torch.arange(len(partner))


def _more_than_chance(
    agree: Bool[Tensor, " tokens"],
    *,
    together: int = 1,
    tries: int = 1,
    chance: float | None = None,
    level: float = CHANCE,
) -> bool:
    """Whether more tokens agree than independent random partners would, at `level`. `together`:
    tokens that agree at once (2 for mutual pairs); `tries`: counts of which this is the largest;
    `chance`: of one agreement, default that of naming one given token."""
    size, count = len(agree), int(agree.sum())
    if count < LEAST_SHARE * size:
        return False
    draws, each = size // together, 1 / (size - 1) if chance is None else chance
    law = torch.distributions.Binomial(draws, torch.tensor(each, dtype=DTYPE))
    values = torch.arange(count // together, draws + 1, dtype=DTYPE)
    tail = law.log_prob(values).exp().sum()  # type: ignore[no-untyped-call]
    return float(tail) * tries < level


@dataclass(frozen=True)
class _ReadOut:
    """Logits at every place of random contexts; every place is a query that nothing precedes.

    - `asked` (n, pos): index into the tokens of the token at each place.
    - `logits` (n, pos, tokens): read-out over the tokens; NaN for the words up to that place,
      which are no association.
    - `parts`: the share of the direct path, of each layer's heads, then of each MLP, like `logits`;
      each at the norm that the output has there, so that nothing of one is left in the rest.
    - `floor`: nats up to which a logit is round-off of the weights.
    """

    asked: Int[Tensor, "n pos"]
    logits: Float[Tensor, "n pos tokens"]
    parts: tuple[Float[Tensor, "n pos tokens"], ...]
    floor: float

    @staticmethod
    def take(probe: Probe, tokens: Int[Tensor, " tokens"], *, stream: int) -> _ReadOut:
        weights, size = probe.weights, len(tokens)
        n = min(MOST_CONTEXTS, DRAWS * size)
        length = min(probe.context, size)
        index = torch.arange(size)
        asked = distinct_tokens(n, length, index, generator=probe.generator(stream))
        count = 2 + weights.n_layers + sum(m is not None for m in weights.mlps)
        found: list[list[Tensor]] = [[] for _ in range(count)]
        floor = []
        W_U = weights.W_U[:, tokens]
        for start in range(0, n, 128):
            rows = asked[start : start + 128]
            trace = sum_paths(weights, tokens[rows])
            # Attention is causal: at each place, the words up to it are shown.
            where = torch.full((len(rows), size), length)
            where.scatter_(1, rows, torch.arange(length).expand_as(rows))
            shown = where[:, None] <= torch.arange(length)[:, None]
            mlps = [r for r, m in zip(trace.rest, weights.mlps, strict=True) if m is not None]
            written = [weights.W_E[tokens[rows]], *(w.sum(1) for w in trace.written), *mlps]
            reads = [trace.final @ W_U + weights.b_U[tokens]]
            reads += [w * trace.inverse_rms[-1] @ W_U for w in written]
            for part, read in zip(found, reads, strict=True):
                part.append(read.masked_fill(shown, float("nan")))
            floor.append(float(resolution(weights, trace.final).max()))
        logits, *parts = (torch.cat(part) for part in found)
        return _ReadOut(asked, logits, tuple(parts), max(floor))

    def table(
        self, places: Int[Tensor, " places"], *, part: int | None = None
    ) -> Float[Tensor, "tokens tokens"]:
        """Mean read-out of each token at these places, centred; -inf on the diagonal. With `part`,
        that part's share."""
        size = self.logits.shape[-1]
        logits = self.logits if part is None else self.parts[part]
        rows = logits[:, places].flatten(0, 1)
        asked = self.asked[:, places].flatten()
        total = torch.zeros(size, size, dtype=DTYPE).index_add_(0, asked, rows.nan_to_num(0.0))
        count = torch.zeros(size, size, dtype=DTYPE)
        count.index_add_(0, asked, (~rows.isnan()).to(DTYPE))
        return _centred(total / count)

    def places_that_answer(self, seeds: Tensor, partner: Tensor) -> Int[Tensor, " places"]:
        """Places at which most of the seed tokens have the partner that both paths name."""
        hits = []
        for place in range(1, self.asked.shape[1]):
            best = self.table(torch.tensor([place])).argmax(1)
            hits.append(float((best == partner)[seeds].double().mean()))
        values = torch.tensor(hits)
        return 1 + (values >= NEAR_BEST * values.max()).nonzero()[:, 0]


def _centred(table: Tensor) -> Tensor:
    """Centred over tokens and over partners, the diagonal and NaN left out; these become -inf."""
    table = table.clone().fill_diagonal_(float("nan"))
    table = table - table.nanmean(0, keepdim=True)
    table = table - table.nanmean(1, keepdim=True)
    return table.nan_to_num(nan=float("-inf"))


def row_null(
    row: Float[Tensor, "n vocab"], top: Int[Tensor, " n"], *, level: float = 0.5
) -> Float[Tensor, " n"]:
    """What the largest of a row's entries stays below with chance `level` when they are normal
    draws, from the mean and spread of the row without its largest entry (-inf: no draw)."""
    rest = row.scatter(1, top[:, None], float("-inf"))
    count = torch.isfinite(rest).sum(1).clamp(min=2)
    rest = rest.masked_fill(~torch.isfinite(rest), 0)
    mean = rest.sum(1) / count
    variance = (rest.pow(2).sum(1) / count - mean.pow(2)).clamp(min=0)
    return mean + variance.sqrt() * outlier(count, level)


def outlier(count: Int[Tensor, " n"], level: float) -> Float[Tensor, " n"]:
    """How many spreads above the mean of `count` normal draws the largest of `count` + 1 stays with
    chance `level` (nearly), mean and spread being those of the others.

    Student's t of count - 1 degrees at level^(1 / (count + 1)), times sqrt((count + 1) / (count -
    1)), for a spread that divides by count (the leave-one-out form of Grubbs 1950). Near a normal
    quantile for thousands of draws, a tenth above it for forty.
    """
    from scipy.special import stdtrit  # comes with scikit-learn

    m = count.to(DTYPE).clamp(min=2)
    quantile = torch.as_tensor(stdtrit((m - 1).numpy(), (level ** (1 / (m + 1))).numpy()))
    return quantile.to(DTYPE) * ((m + 1) / (m - 1)).sqrt()
