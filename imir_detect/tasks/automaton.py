"""In-context language learning: strings of a random finite automaton, drawn anew per sequence."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from math import comb, log

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.tasks.base import IGNORE, Axis, Batch, Ceiling
from imir_detect.tasks.blocks import Offsets, random_order
from imir_detect.tasks.checks import (
    Rule,
    at_least,
    enough_rare,
    placed_blocks,
    require,
    right_types,
    shares,
)
from imir_detect.tasks.family import BlockTask, ask_last, last_place, last_seen
from imir_detect.tasks.labels import ExpectedCircuit, induction

SEPARATOR = 0
MOST_AUTOMATA = 20_000  # hypotheses that the exact law sums over


@dataclass(frozen=True)
class Automaton:
    """Random automata in tables: arc j of state s reads `symbol[.., s, j]`, goes to `target`."""

    symbol: Int[Tensor, "n states arcs"]
    target: Int[Tensor, "n states arcs"]


@dataclass(frozen=True)
class AutomatonStrings(BlockTask):
    """Strings of one random automaton; every next symbol is asked.

    A sequence is n + 1 blocks [separator s_1 .. s_m]; the last is cut before its last symbol.
    Every string starts in state 0. A state has `arcs` outgoing arcs of different symbols, each
    to a uniformly drawn state, and takes each with equal chance.

    - `states`, `symbols`, `arcs`: size of the automaton; the symbols are rare tokens.
    - `block_length`: tokens of a block, the separator included. `n_blocks`: complete blocks.
    - `label_noise`, `offsets`, `positions`: as in recall.

    The law sums over all automata, where there are at most 20,000; else it is None. `oracle` is
    what a predictor that is told the automaton reaches: a bound that no model passes.

    >>> AutomatonStrings(states=3, symbols=3, arcs=2).n_automata
    19683
    """

    states: int = 3
    symbols: int = 3
    arcs: int = 2
    n_blocks: int = 5
    block_length: int = 8
    n_rare: int = 18
    label_noise: float = 0.0
    offsets: Offsets = "consecutive"
    positions: int | None = None

    name = "automaton"
    fixed_tokens = ("|",)

    def __post_init__(self) -> None:
        require(self.name, right_types(self))
        lows = {"states": 1, "arcs": 1, "n_blocks": 0, "block_length": 2}
        require(self.name, at_least(self, **lows))
        require(
            self.name,
            [
                Rule(
                    self.arcs <= self.symbols,
                    f"arcs={self.arcs} with symbols={self.symbols}",
                    "no more arcs than symbols: the arcs of a state read different ones",
                    "lower arcs or raise symbols",
                ),
                enough_rare(self, self.symbols, "one for every symbol"),
                *shares(self, "label_noise"),
                *placed_blocks(self),
            ],
        )

    @property
    def n_automata(self) -> int:
        """How many automata there are over given symbols."""
        return (comb(self.symbols, self.arcs) * self.states**self.arcs) ** self.states

    @property
    def oracle(self) -> tuple[float, float]:
        """(accuracy, loss in nats) of a predictor that knows the automaton; no label noise."""
        return 1 / self.arcs, log(self.arcs)

    @property
    def block_lengths(self) -> tuple[int, ...]:
        return (*[self.block_length] * self.n_blocks, self.block_length - 1)

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        """In-context n-gram heads, which come close to the law without being it."""
        part = "the share that the last tokens tell"
        return tuple(induction(k, covers=part) for k in (1, 2))

    def draw(self, n: int, *, generator: torch.Generator) -> Batch:
        return self.draw_with_automata(n, generator=generator)[0]

    def draw_with_automata(
        self, n: int, *, generator: torch.Generator
    ) -> tuple[Batch, Automaton, Int[Tensor, "n pos"]]:
        """Sequences, the automata that made them, and the state before every next symbol (-1:
        none is asked)."""
        g, blocks, inside = generator, self.n_blocks + 1, self.block_length - 1
        alphabet = self.n_fixed + random_order(n, self.n_rare, generator=g)[:, : self.symbols]
        orders = random_order(n * self.states, self.symbols, generator=g)[:, : self.arcs]
        read = orders.reshape(n, self.states * self.arcs)
        goal = torch.randint(self.states, (n, self.states * self.arcs), generator=g)
        choice = torch.randint(self.arcs, (inside, n, blocks), generator=g)
        state = torch.zeros(n, blocks, dtype=torch.long)
        strings = torch.full((n, blocks, self.block_length), SEPARATOR)
        states = torch.full_like(strings, -1)
        for step in range(inside):
            arc = self.arcs * state + choice[step]
            states[..., step] = state
            strings[..., step + 1] = alphabet.gather(1, read.gather(1, arc))
            state = goal.gather(1, arc)
        tokens = strings.flatten(1)
        nxt = tokens[:, 1:]
        states = states.flatten(1)[:, :-1]
        targets = torch.where(states >= 0, nxt, IGNORE)
        batch = Batch(
            tokens[:, :-1].contiguous(),
            targets,
            last_seen(tokens[:, :-1], targets, self.vocab_size),
            self.place(n, generator=g),
        )
        shape = (n, self.states, self.arcs)
        symbols = alphabet.gather(1, read).view(shape)
        return batch, Automaton(symbols, goal.view(shape)), states

    def probe(self, axis: Axis, n: int, *, generator: torch.Generator) -> Batch | None:
        """None: the answer is a guess among `arcs` symbols, so accuracy has no axis."""
        return None

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """The last question of clean sequences, and of ones whose last token took another arc.

        Both are strings of the same automaton, and their answers differ.
        """
        turn = Rule(
            self.arcs >= 2 and self.block_length >= 3,
            f"arcs={self.arcs}, block_length={self.block_length}",
            "arcs of at least 2 and blocks of at least 3: a last token to take another arc",
            "raise them",
        )
        require(self.name, [turn])
        batch, machine, states = self.draw_with_automata(n, generator=generator)
        row = torch.arange(n)

        def turned(state: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
            """Another arc's symbol than `token` out of `state`, and where it leads."""
            symbol, target = machine.symbol[row, state], machine.target[row, state]
            by = torch.randint(1, self.arcs, (n,), generator=generator)
            arc = ((symbol == token[:, None]).long().argmax(dim=1) + by) % self.arcs
            return symbol[row, arc], target[row, arc]

        asked = batch.targets[:, -1]
        tokens = batch.tokens.clone()
        tokens[:, -1], state = turned(states[:, -2], tokens[:, -1])
        symbol = machine.symbol[row, state]
        answer = symbol[:, 0].where(symbol[:, 0] != asked, symbol[:, 1])
        clean = ask_last(batch.tokens, asked, batch.answer_position[:, -1], batch.positions)
        return clean, ask_last(tokens, answer, last_place(tokens, answer), batch.positions)

    def clean_law(self, batch: Batch) -> Float[Tensor, "asked vocab"] | None:
        if self.n_automata > MOST_AUTOMATA:
            return None
        return automaton_law(self, batch)

    def ceiling(self) -> Ceiling:
        """Not closed; `law` gives it on samples, `oracle` bounds it."""
        return Ceiling(None, None, None, None, None, None)

    def token_name(self, token: int) -> str:
        letter = token - self.n_fixed
        return chr(ord("a") + letter) if 0 <= letter < 26 else super().token_name(token)


# -- the exact law --------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def all_automata(states: int, symbols: int, arcs: int) -> Int[Tensor, "automata states symbols"]:
    """Every automaton as a table: the state that a symbol leads to, -1 where no arc reads it."""
    rows = []
    for read in itertools.combinations(range(symbols), arcs):
        for goal in itertools.product(range(states), repeat=arcs):
            row = [-1] * symbols
            for symbol, state in zip(read, goal, strict=True):
                row[symbol] = state
            rows.append(row)
    return torch.tensor(list(itertools.product(rows, repeat=states)))


def automaton_law(
    task: AutomatonStrings, batch: Batch, *, chunk: int = 16
) -> Float[Tensor, "asked vocab"]:
    """Bayes' predictive law, exact: the mean over all automata that can make what was seen.

    All arcs of a state are equally likely, so every automaton that can make a sequence gives it
    the same chance, and the posterior is uniform over them. Symbols are known only up to their
    order of appearance; the chance of a new one is shared by the tokens not seen yet.
    """
    parts = [
        _law_of_chunk(task, batch[start : start + chunk]) for start in range(0, len(batch), chunk)
    ]
    return torch.cat(parts)


def _law_of_chunk(task: AutomatonStrings, batch: Batch) -> Float[Tensor, "asked vocab"]:
    table = all_automata(task.states, task.symbols, task.arcs)
    count, size = len(table), task.states * task.symbols
    goal = table.flatten()
    has_arc = (table >= 0).double()  # automata, states, symbols
    base = size * torch.arange(count)
    names = first_appearance(batch.tokens, task.n_fixed)
    n, length = batch.tokens.shape
    state = torch.zeros(n, count, dtype=torch.long)
    alive = torch.ones(n, count, dtype=torch.bool)
    seen = torch.zeros(n, task.vocab_size, dtype=torch.bool)
    rows = torch.arange(n)
    law = torch.zeros(n, length, task.vocab_size, dtype=torch.float64)
    for t in range(length):
        token, name = batch.tokens[:, t], names[:, t]
        if bool((token == SEPARATOR).all()):
            state = torch.zeros_like(state)
        else:
            new = goal[base + task.symbols * state + name[:, None]]
            alive &= new >= 0
            state = new.clamp(min=0)
            seen[rows, token] = True
        if bool((batch.targets[:, t] == IGNORE).all()):
            continue
        known = seen.sum(dim=1)
        share = torch.zeros(n, task.symbols, dtype=torch.float64)
        for s in range(task.states):
            share += (alive & (state == s)).double() @ has_arc[:, s]
        share /= task.arcs * alive.sum(dim=1, keepdim=True)
        old = torch.arange(task.symbols) < known[:, None]
        fresh = (share * ~old).sum(dim=1) / (task.n_rare - known).clamp(min=1)
        place = (names[:, : t + 1, None] == torch.arange(task.symbols)).long().argmax(dim=1)
        law[:, t] = fresh[:, None] * ~seen
        law[:, t, : task.n_fixed] = 0
        law[:, t].scatter_add_(1, batch.tokens.gather(1, place), share * old)
    return law[batch.targets != IGNORE]


def first_appearance(tokens: Int[Tensor, "n pos"], n_fixed: int) -> Int[Tensor, "n pos"]:
    """Number of every token in the order in which its row first shows them; -1 for fixed ones."""
    length = tokens.shape[1]
    same = tokens[:, :, None] == tokens[:, None, :]
    first = same.long().argmax(dim=2)  # where the token stands first
    new = (first == torch.arange(length)) & (tokens >= n_fixed)
    rank = new.long().cumsum(dim=1) - 1
    return torch.where(tokens >= n_fixed, rank.gather(1, first), -1)
