"""The exact law of the next symbol of a random automaton: a sum over all automata."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.tasks.base import IGNORE, Batch

if TYPE_CHECKING:
    from imir_detect.tasks.automaton import AutomatonStrings

SEPARATOR = 0  # opens every string


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
