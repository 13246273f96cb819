"""In-context language learning: strings of a random finite automaton, drawn anew per sequence."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, log

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.tasks.automaton_law import SEPARATOR, automaton_law
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
