"""Literal versions of the tasks, enumerated: every way a tiny sequence can come out.

A program draws one sequence with `Chooser`, as the task's docstring says it, token by token, and
shares no code with the samplers. `enumerate_program` runs it once for every combination of
choices and adds up the probabilities.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from imir_detect.tasks import IGNORE

Outcome = tuple[tuple[int, ...], tuple[int, ...]]  # tokens, targets
Law = dict[Outcome, float]


class Chooser:
    """Answers every choice from a script, and beyond its end with the first option."""

    def __init__(self, script: list[int]) -> None:
        self.script, self.sizes, self.weight, self.at = script, [], 1.0, 0

    def one(self, options: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
        """One of the options; those of weight 0 are never taken."""
        weights = [1.0] * len(options) if weights is None else list(weights)
        kept = [(o, w) for o, w in zip(options, weights, strict=True) if w > 0]
        if self.at == len(self.script):
            self.script.append(0)
        option, weight = kept[self.script[self.at]]
        self.sizes.append(len(kept))
        self.weight *= weight / sum(w for _, w in kept)
        self.at += 1
        return option

    def flip(self, chance: float) -> bool:
        return self.one([True, False], [chance, 1 - chance])

    def some(self, options: Sequence[Any], count: int) -> list[Any]:
        """`count` different options, in order."""
        left, found = list(options), []
        for _ in range(count):
            found.append(self.one(left))
            left.remove(found[-1])
        return found


def enumerate_program(program: Callable[[Any, Chooser], Outcome], task: Any) -> Law:
    """Probability of every outcome."""
    law: Law = defaultdict(float)
    script: list[int] = []
    while True:
        chooser = Chooser(script)
        law[program(task, chooser)] += chooser.weight
        while script and script[-1] + 1 == chooser.sizes[len(script) - 1]:
            script.pop()
        if not script:
            return dict(law)
        script[-1] += 1


def with_noise(task: Any, law: Law) -> Law:
    """Every asked target replaced by a uniform token with the task's label noise."""
    if not task.label_noise:
        return law
    noisy: Law = dict(law)
    for place in range(task.length):
        step: Law = defaultdict(float)
        for (tokens, targets), chance in noisy.items():
            if targets[place] == IGNORE:
                step[tokens, targets] += chance
                continue
            step[tokens, targets] += chance * (1 - task.label_noise)
            for token in range(task.vocab_size):
                other = (*targets[:place], token, *targets[place + 1 :])
                step[tokens, other] += chance * task.label_noise / task.vocab_size
        noisy = dict(step)
    return noisy


def last(tokens: Sequence[int], answer: int) -> Outcome:
    return tuple(tokens), (*[IGNORE] * (len(tokens) - 1), answer)


def arrange(task: Any, c: Chooser, first: Any, others: list[Any], shown: bool = True) -> list[Any]:
    """The query's block (`first`) in `burstiness` places, the others around it in order.

    The others are drawn alike, so their own order needs no choice.
    """
    if not shown:
        return others
    n = len(others) + task.burstiness
    places = range(1 if task.query_never_first else 0, n)
    mine = c.one(list(combinations(places, task.burstiness)))
    rest = iter(others)
    return [first if i in mine else next(rest) for i in range(n)]


def flat(blocks: Sequence[Sequence[int]]) -> list[int]:
    return [token for block in blocks for token in block]


# -- one program per task -------------------------------------------------------------------------


def recall(task: Any, c: Chooser) -> Outcome:
    half = task.n_common // 2
    pairs = [(i, i + half) if task.directed else (2 * i, 2 * i + 1) for i in range(half)]
    rare = [c.flip(task.rare_frequency)]
    fresh = [not rare[0] and c.flip(task.variability)]
    shown = rare[0] or fresh[0] or c.flip(task.present)
    for _ in range(task.n_blocks - task.burstiness if shown else task.n_blocks):
        rare.append(c.flip(task.rare_frequency))
        fresh.append(not rare[-1] and c.flip(task.variability))
    blocks: list[list[int]] = []
    for is_rare in rare:
        if is_rare:
            blocks.append([])
            continue
        rank = [1 + (first if task.directed else first // 2) for first, _ in pairs]
        pair = c.one(pairs, [r**-task.zipf for r in rank])
        pairs = [p for p in pairs if p != pair]
        swap = not task.directed and c.flip(0.5)
        blocks.append([pair[1], pair[0]] if swap else list(pair))
    spare = [p[1] for p in pairs] if task.directed else flat(pairs)
    tokens = list(range(task.n_common, task.vocab_size))
    for block, is_rare, is_fresh in zip(blocks, rare, fresh, strict=True):
        if is_rare:
            block += c.some(tokens, 2)
            tokens = [t for t in tokens if t not in block]
        elif is_fresh:
            block[1] = c.one(spare)
            spare.remove(block[1])
    context = arrange(task, c, blocks[0], blocks[1:], shown)
    return last([*flat(context), blocks[0][0]], blocks[0][1])


def ngram(task: Any, c: Chooser) -> Outcome:
    width, shown = task.block_length - 1, c.flip(task.present)
    stems = c.some(range(task.n_rare), task.n_stems)
    keys: list[tuple[int, ...]] = [()]
    for _ in range(width):
        keys = [(*key, stem) for key in keys for stem in stems]
    others = task.n_blocks - task.burstiness if shown else task.n_blocks
    mine = c.some(keys, 1 + others)
    values = c.some([t for t in range(task.n_rare) if t not in stems], 1 + others)
    blocks = [[*key, value] for key, value in zip(mine, values, strict=True)]
    context = arrange(task, c, blocks[0], blocks[1:], shown)
    return last([*flat(context), *mine[0]], values[0])


def conditional(task: Any, c: Chooser) -> Outcome:
    rare = range(task.conditions, task.vocab_size)
    keys = c.some(rare, task.n_keys)
    grid = [(condition, key) for key in keys for condition in range(task.conditions)]
    values = c.some([t for t in rare if t not in keys], len(grid))
    blocks = [[*key, value] for key, value in zip(grid, values, strict=True)]
    asked = c.one(blocks)
    others = c.some([b for b in blocks if b != asked], len(blocks) - 1)
    context = arrange(task, c, asked, others)
    return last([*flat(context), *asked[:2]], asked[2])


def k_hop(task: Any, c: Chooser) -> Outcome:
    m, d = task.n_links, task.distractors
    items = c.some(range(task.n_rare), m + d + (task.structure == "chain"))
    if task.structure == "chain":
        image = {items[i]: items[i + 1] for i in range(m)}
        asked = items[c.one(range(m - task.hops + 1))]
    else:
        ring = items[:m]
        images = c.some(ring, m) if task.structure == "permutation" else [*ring[1:], ring[0]]
        image = dict(zip(ring, images, strict=True))
        asked = ring[0]
    answer = asked
    for _ in range(task.hops):
        answer = image[answer]
    blocks = list(image.items())
    ring = items[-d:] if d else []
    blocks += [(a, b) for a, b in zip(ring, [*ring[1:], *ring[:1]], strict=True)]
    first = (asked, image[asked])
    others = c.some([b for b in blocks if b != first], len(blocks) - 1)
    return last([*flat(arrange(task, c, first, others)), asked], answer)


def inversion(task: Any, c: Chooser) -> Outcome:
    items = c.some(range(task.n_rare), task.items)
    images = (
        c.some(items, len(items))
        if task.structure == "permutation"
        else [
            *items[1:],
            items[0],
        ]
    )
    blocks = list(zip(items, images, strict=True))
    others = c.some(blocks[1:], len(blocks) - 1)
    return last([*flat(arrange(task, c, blocks[0], others)), images[0]], items[0])


def ioi(task: Any, c: Chooser) -> Outcome:
    distinct = task.n_blocks - task.burstiness + 1
    names = c.some(range(3, task.vocab_size), 2 * distinct)
    sentences = [[names[2 * i], 0, names[2 * i + 1], 1] for i in range(distinct)]
    subject, answer = c.one([(names[0], names[1]), (names[1], names[0])])
    context = arrange(task, c, sentences[0], sentences[1:])
    return last([*flat(context), subject, 2], answer)


def automaton(task: Any, c: Chooser) -> Outcome:
    alphabet = c.some(range(1, task.vocab_size), task.symbols)
    arcs = []
    for _ in range(task.states):
        read = c.one(list(combinations(alphabet, task.arcs)))
        arcs.append([(symbol, c.one(range(task.states))) for symbol in read])
    stream: list[int] = []
    for _ in range(task.n_blocks + 1):
        stream.append(0)
        state = 0
        for _ in range(task.block_length - 1):
            symbol, state = c.one(arcs[state])
            stream.append(symbol)
    targets = tuple(IGNORE if token == 0 else token for token in stream[1:])
    return tuple(stream[:-1]), targets


def fragments(task: Any, c: Chooser) -> Outcome:
    tokens = range(2, task.vocab_size)
    stems = c.some(tokens, task.n_stems)
    ordered = [(a, b) for a in stems for b in stems if a != b]
    first = [*c.some(ordered, task.binary), *[(a,) for a in c.some(stems, task.unary)]]
    endings = c.some([t for t in tokens if t not in stems], task.n_blocks)
    rules, chains = [], []
    for i, premises in enumerate(first):
        chain = [*premises], *[[e] for e in endings[i * task.depth : (i + 1) * task.depth]]
        rules += [[*a, 1, *b] for a, b in pairwise(chain)]
        chains.append((premises, chain[-1][0]))
    premises, answer = c.one(chains)
    context = flat(c.some(rules, len(rules)))
    return last([*[0] * (3 - len(premises)), *context, *premises, 1], answer)


def text(task: Any, c: Chooser) -> Outcome:
    words = Path(task.file).read_text(encoding="utf-8").split()
    stream = [task.words.index(word) if word in task.words else 0 for word in words]
    begin = c.one(range(len(stream) - task.window + 1))
    window = stream[begin : begin + task.window]
    start = c.one(range(task.window - task.repeat + 1))
    stretch = window[start : start + task.repeat]
    return (*window, *stretch[:-1]), (*[IGNORE] * task.window, *stretch[1:])


def mixture(task: Any, c: Chooser) -> Outcome:
    tokens: list[int] = []
    targets: list[int] = []
    for _ in range(task.segments):
        kind = c.one(range(len(task.tasks)), task.shares)
        part = task.tasks[kind]
        inner, asked = PROGRAMS[part.name](part, c)
        fill = task.segment_length - 1 - len(inner)
        tokens += [task.shared + kind, *inner, *[task.filling] * fill]
        targets += [IGNORE, *asked, *[IGNORE] * fill]
    return tuple(tokens), tuple(targets)


def copying(task: Any, c: Chooser) -> Outcome:
    weights = [(1 + t) ** -task.zipf for t in range(task.n_common)]
    tokens = [c.one(range(task.n_common), weights) for _ in range(task.n_tokens)]
    back = task.offset
    return tuple(tokens), (*[IGNORE] * back, *tokens[: task.n_tokens - back])


def unigram(task: Any, c: Chooser) -> Outcome:
    stream: list[int] = []
    for _ in range(task.n_tokens + 1):
        weights = [stream.count(v) + task.concentration for v in range(task.n_common)]
        stream.append(c.one(range(task.n_common), weights))
    return tuple(stream[:-1]), tuple(stream[1:])


def majority(task: Any, c: Chooser) -> Outcome:
    two = c.one(list(combinations(range(task.n_common), 2)))
    tokens = [c.one(two) for _ in range(task.n_tokens)]
    return last(tokens, max(two, key=tokens.count))


def sorting(task: Any, c: Chooser) -> Outcome:
    items = [c.one(range(task.n_common)) for _ in range(task.n_items)]
    ordered = sorted(items)
    return (*items, task.n_common, *ordered[:-1]), (*[IGNORE] * task.n_items, *ordered)


def periodic(task: Any, c: Chooser) -> Outcome:
    word = [c.one(range(task.n_common)) for _ in range(task.period)]
    stream = [word[i % task.period] for i in range(task.n_tokens + 1)]
    due = task.period - 1
    return tuple(stream[:-1]), (*[IGNORE] * due, *stream[due + 1 :])


PROGRAMS: dict[str, Callable[[Any, Chooser], Outcome]] = {
    "recall": recall,
    "ngram": ngram,
    "k_hop": k_hop,
    "ioi": ioi,
    "conditional": conditional,
    "inversion": inversion,
    "automaton": automaton,
    "fragments": fragments,
    "text": text,
    "mixture": mixture,
    "copy_last": copying,
    "offset_copy": copying,
    "unigram": unigram,
    "majority": majority,
    "sorting": sorting,
    "periodic": periodic,
}
