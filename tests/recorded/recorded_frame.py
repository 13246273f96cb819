"""Recorded answers of `imir_detect.frame`: one case a function, on small seeded inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from plain_answers import said
from small_models import F64, normal
from torch import Tensor

from imir_detect.frame import basis
from imir_detect.frame.basis import Coefficients, Frame, paths
from imir_detect.frame.commutant import commutant, permutation_matrix, span_distance
from imir_detect.frame.contexts import (
    asking_contexts,
    distinct_tokens,
    need,
    repeated_contexts,
    swap_in,
)
from imir_detect.frame.lookups import Lookup, matching_contexts, without_match
from imir_detect.frame.names import Direction, Path, Selection, shift
from imir_detect.frame.relations import (
    centre,
    class_identity,
    cycle,
    is_directed,
    selections,
    token_classes,
)
from imir_detect.frame.template import Template

UNDIRECTED = torch.tensor([1, 0, 3, 2, -1])
DIRECTED = torch.tensor([3, 4, -1, -1, -1])
WORDS = torch.tensor([7, 3, 11, 5, 2, 13, 0, 9, 8, 1, 12])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def frame(*, separated: bool, layers: int = 2) -> Frame:
    chosen = selections(UNDIRECTED, 3, shifts=1, per_class=False)
    embedding = normal(8, 5 if separated else 4, seed=1)
    values = None if separated else 0.7 * normal(layers, 2, 4, 4, seed=2)
    return Frame(embedding, 5, layers, 2, chosen, values)


def weights_of(made: Frame) -> tuple[tuple[Tensor, ...], Tensor]:
    widths = [made.width(layer) for layer in range(made.n_layers + 1)]
    attention = tuple(normal(2, w, w, seed=10 + w) for w in widths[:-1])
    return attention, normal(widths[-1], made.embedding.shape[1], seed=20)


def frame_numbers(separated: bool) -> Callable[[], Any]:
    def answer() -> Any:
        made = frame(separated=separated, layers=2 if not separated else 1)
        attention, output = weights_of(made)
        found = made.project(attention, output)
        rest, rest_output = made.outside(attention, output)
        flat = torch.arange(len(found.flat()), dtype=F64)
        return {
            "separated": made.separated,
            "stack": made.stack,
            "output selections": [str(s) for s in made.output_selections],
            "output stack": made.output_stack,
            "widths": [made.width(layer) for layer in range(made.n_layers + 1)],
            "paths": [[str(p) for p in made.paths(layer)] for layer in range(3)],
            "directions": [str(d) for d in made.directions()],
            "reads": [made.reads(layer) for layer in range(made.n_layers + 1)],
            "matrices": made.matrices(made.n_layers - 1),
            "output matrices": made.output_matrices(),
            "coefficients": found,
            "flat": found.flat(),
            "like": found.like(flat),
            "rebuilt": made.rebuild(found),
            "outside": (rest, rest_output),
            "ranks": [made.rank(layer) for layer in range(made.n_layers + 1)],
        }

    return answer


def frame_errors() -> Any:
    made = frame(separated=False)
    attention, output = weights_of(made)
    wrong = {s: m[:-1] for s, m in made.selections.items()}
    found = {
        "selection": said(lambda: replace(made, selections=wrong)),
        "heads": said(lambda: made.project(tuple(a[:1] for a in attention), output)),
        "output": said(lambda: made.project(attention, output[:, :-1])),
        "largest": basis.LARGEST_DESIGN,
    }
    # 4 selections, 9 pairs of paths, 16 numbers each: at the bar it goes, one below it does not.
    whole = len(made.selections) * 9 * 16
    for name, bar in (("at", whole), ("below", whole - 1)):
        basis.LARGEST_DESIGN, kept = bar, basis.LARGEST_DESIGN
        try:
            found[name] = said(lambda: made.project(attention, output))
        finally:
            basis.LARGEST_DESIGN = kept
    return found


def frame_of_lower_rank() -> Any:
    """Two equal selections: the smallest solution shares what they both explain."""
    made = frame(separated=True, layers=1)
    names = list(made.selections)
    twice = {**made.selections, Selection("position", "shift", 2): made.selections[names[-1]]}
    made = replace(made, selections=twice)
    return made.project(*weights_of(made)), [made.rank(layer) for layer in (0, 1)]


def all_paths() -> Any:
    return {f"{h}, {n}": [str(p) for p in paths(h, n)] for h in (1, 2, 3) for n in (0, 1, 2, 3)}


def coefficients() -> Any:
    made = Coefficients(
        (normal(2, 3, 1, 1, seed=1), normal(2, 3, 3, 3, seed=2)), normal(2, 3, seed=3)
    )
    return made.flat(), made.like(made.flat() + 1)


def names() -> Any:
    tries: dict[str, Callable[[], Any]] = {
        "identity of mixed": lambda: Selection("mixed", "identity"),
        "shift of tokens": lambda: Selection("token", "shift", 1),
        "shift 0": lambda: shift(0),
        "shift -1": lambda: shift(-1),
        "shift 1": lambda: shift(1),
        "cycle 1": lambda: cycle(1),
        "identity 1": lambda: Selection("token", "identity", 1),
        "identity -1": lambda: Selection("token", "identity", -1),
        "one class": lambda: Selection("token", "identity", 0, ("a",)),
        "two classes": lambda: Selection("token", "identity", 0, ("a", "b")),
        "class of positions": lambda: Selection("position", "identity", 0, ("a",)),
        "ones of one": lambda: Selection("token", "ones", 0, ("a",)),
        "ones of two": lambda: Selection("mixed", "ones", 0, ("a", "position")),
        "association of one": lambda: Selection("token", "association", 0, ("a",)),
        "back": lambda: Selection("token", "association_back"),
        "unknown": lambda: Selection("token", "nothing"),  # type: ignore[arg-type]
        "path back": lambda: Path(((1, 0), (0, 0))),
        "path twice": lambda: Path(((0, 0), (0, 1))),
        "path": lambda: Path(((0, 1), (2, 0))),
        "association on positions": lambda: Selection("position", "association"),
    }
    path = Path(((0, 1),)).then((2, 3))
    return {
        **{name: said(act) for name, act in tries.items()},
        "words": [
            str(Selection("token", "identity", 0, ("a",))),
            str(Selection("mixed", "ones", 0, ("a", "position"))),
            str(Selection("position", "identity")),
            str(Selection("token", "association")),
            str(shift(3)),
            str(cycle(2)),
            str(path),
            str(path.is_direct),
            str(Path().is_direct),
            str(Direction((1, 2), path, shift(1))),
            str(Direction(None, path, shift(1))),
        ],
    }


def groups() -> Any:
    triangle = torch.tensor([1, 2, 0, 3])
    swap = torch.tensor([0, 1, 3, 2])
    a, b = normal(2, 3, 3, seed=1), normal(2, 3, 3, seed=2)
    return {
        "permutation": permutation_matrix(triangle),
        "no permutation": said(lambda: permutation_matrix(torch.tensor([0, 0, 2]))),
        "ranks": [len(commutant([g])) for g in (triangle, swap, torch.arange(4))],
        "both": len(commutant([triangle, swap])),
        "projector": sum(m.flatten().outer(m.flatten()) for m in commutant([triangle])),
        "orthonormal": [m.square().sum() for m in commutant([swap])],
        "32": said(lambda: commutant([torch.arange(33)])),
        "distances": [
            span_distance(a, b),
            span_distance(a, 2 * a),
            span_distance(a, a[:1]),
            span_distance(a, a + 0.3 * b),
            span_distance(torch.cat([a, a[:1] + a[1:]]), a),
        ],
    }


def drawn() -> Any:
    places = torch.tensor([2, 5])
    asked, wanted = WORDS[:6], WORDS.flip(0)[:6]
    return {
        "distinct": distinct_tokens(5, 7, WORDS, generator=generator()),
        "starts over": distinct_tokens(3, 17, WORDS[:4], generator=generator()),
        "once": distinct_tokens(2, 4, WORDS[:4], generator=generator()),
        "at 4096": distinct_tokens(2, 5, torch.arange(4096), generator=generator()),
        "above": distinct_tokens(3, 90, torch.arange(4097), generator=generator()),
        "repeated": repeated_contexts(4, 9, WORDS, generator=generator()),
        "short": repeated_contexts(4, 8, WORDS[:3], generator=generator()),
        "one": repeated_contexts(4, 1, WORDS, generator=generator()),
        "two": repeated_contexts(2, 2, WORDS, generator=generator()),
        "asking": asking_contexts(asked, wanted, 8, WORDS, generator=generator()),
        "at places": asking_contexts(asked, wanted, 8, WORDS, places=places, generator=generator()),
        "few words": asking_contexts(asked, wanted, 9, WORDS[:8], generator=generator()),
        "three words": asking_contexts(asked, wanted, 6, WORDS[:3], generator=generator()),
        "two words": asking_contexts(
            torch.tensor([7]), torch.tensor([3]), 4, WORDS[:2], generator=generator()
        ),
        "too short": said(lambda: asking_contexts(asked, wanted, 1, WORDS, generator=generator())),
        "swapped": swap_in(
            torch.stack([WORDS[:6], WORDS[3:9]]),
            torch.tensor([[0, 3], [1, 5]]),
            torch.tensor([[5, 99], [2, 3]]),
        ),
        "need": [said(lambda: need(4, 4)), said(lambda: need(3, 4))],
    }


def selected() -> Any:
    contexts = matching_contexts(6, 9, WORDS, Lookup(hops=2), generator=generator())
    asking = asking_contexts(WORDS[:4], WORDS[4:8], 6, WORDS, generator=generator())
    return [contexts.select(torch.tensor([2, 0])), asking.select(asking.query > 2), len(contexts)]


LOOKUPS = {
    "plain": (Lookup(), 9),
    "two on": (Lookup(2), 9),
    "three on": (Lookup(3), 9),
    "itself": (Lookup(0), 7),
    "one before": (Lookup(-1), 8),
    "two before": (Lookup(-2), 9),
    "prefix": (Lookup(prefix=2), 11),
    "two hops": (Lookup(hops=2), 10),
    "three hops": (Lookup(hops=3), 11),
    "two hops closed": (Lookup(hops=2, closed=True), 11),
    "three hops closed": (Lookup(hops=3, closed=True), 13),
    "one later": (Lookup(2, lag=1), 9),
    "one later, back": (Lookup(-2, lag=1), 9),
    "template": (Lookup(template=Template((0, 1), 3, 2)), 11),
    "template of two": (Lookup(2, template=Template((0,), 2, 1)), 9),
    "template, one later": (Lookup(2, lag=1, template=Template((0, 1), 3, 1)), 11),
    "template, one later, back": (Lookup(-2, lag=1, template=Template((0, 1), 3, 0)), 11),
    "template, prefix": (Lookup(prefix=2, template=Template((0, 1, 8), 3, 1)), 13),
    "template, some allowed": (Lookup(template=Template((0, 1), 3, 0, ((0,), (1,), (0, 1)))), 12),
}


def lookup(name: str) -> Callable[[], Any]:
    asked_for, length = LOOKUPS[name]

    def answer() -> Any:
        full = matching_contexts(24, length, WORDS, asked_for, generator=generator(1))
        some = matching_contexts(
            24, length, WORDS, asked_for, asked=WORDS[2:9], generator=generator(2)
        )
        cells = torch.ones(length, length, dtype=torch.bool)
        cells[:, 1] = False
        cells[-1] = False
        placed = matching_contexts(
            24, length, WORDS, asked_for, cells=cells, generator=generator(3)
        )
        least = next(n for n in range(asked_for.least, 20) if asked_for.cells(n).any())
        shortest = matching_contexts(12, least, WORDS, asked_for, generator=generator(4))
        few = matching_contexts(
            8, length, WORDS, asked_for, asked=WORDS[:1], generator=generator(5)
        )
        a, b = torch.arange(6)[:, None], torch.arange(6)
        return {
            "least": asked_for.least,
            "links": asked_for.links,
            "plain": asked_for.plain,
            "cells": asked_for.cells(length).nonzero(),
            "clash": asked_for.clash(a, b).nonzero(),
            "told": asked_for.told(full.links),
            "words": str(asked_for),
            "full": full,
            "asked": some,
            "placed": placed,
            "shortest": shortest,
            "few asked": few,
            "without": without_match(full, asked_for, generator=generator(6)),
            "without, asked": without_match(some, asked_for, generator=generator(7)),
            "one by one": [
                without_match(
                    full.select(torch.tensor([i])), asked_for, generator=generator(9)
                ).tokens
                for i in range(min(4, len(full)))
            ],
            "of none": without_match(
                full.select(torch.zeros(len(full), dtype=torch.bool)),
                asked_for,
                generator=generator(8),
            ),
            "too short": said(
                lambda: matching_contexts(
                    4, asked_for.least - 1, WORDS, asked_for, generator=generator()
                )
            ),
        }

    return answer


def templates() -> Any:
    some = [
        Template((0, 1), 2, 1),
        Template((5, 3, 8), 4, 0),
        Template((2,), 3, 2),
        Template((0, 1), 2, 0, ((0,), (1,))),
    ]
    tokens = matching_contexts(7, 9, WORDS, generator=generator()).tokens
    said_by = torch.tensor([3, 8, 5, 3, 8])
    return {
        "words": [str(t) for t in some],
        "places": [t.places(n) for t in some for n in (1, 5, 9)],
        "rest": [t.rest(WORDS) for t in some],
        "written": [t.write(tokens, generator=generator(k)) for k, t in enumerate(some)],
        "another": some[1].another(said_by, generator=generator(5)),
        "of two": some[0].another(torch.tensor([0, 1, 1]), generator=generator(5)),
        "unchanged": tokens,
    }


def lookup_errors() -> Any:
    tries = [
        {"hops": 0},
        {"hops": 1},
        {"prefix": 0},
        {"prefix": 3},
        {"prefix": 2, "hops": 2},
        {"closed": True},
        {"closed": True, "hops": 2},
        {"closed": True, "hops": 2, "offset": 0},
        {"closed": True, "hops": 2, "offset": 2},
        {"closed": True, "hops": 3, "offset": 0},
        {"closed": True, "hops": 1, "offset": 5},
        {"closed": True, "prefix": 2},
    ]
    return {str(fields): said(lambda f=fields: Lookup(**f)) for fields in tries}  # type: ignore[misc]


def relation_matrices() -> Any:
    nobody = torch.full((3,), -1)
    settings: dict[str, dict[str, Any]] = {
        "exact": {},
        "shifts": {"shifts": 2},
        "one identity": {"per_class": False, "shifts": 0},
        "no association": {"association": False},
        "no way back": {"back": False},
        "ones": {"ones": True},
        "ones, shifts": {"ones": True, "shifts": 1},
    }
    relations = {"undirected": UNDIRECTED, "directed": DIRECTED, "nobody": nobody}
    return {
        **{
            f"{name}, {how}": {f"{s.space} {s}": m for s, m in selections(r, 3, **options).items()}
            for name, r in relations.items()
            for how, options in settings.items()
        },
        **{f"classes, {name}": token_classes(r) for name, r in relations.items()},
        **{f"directed, {name}": is_directed(r) for name, r in relations.items()},
        "directed to 0": [is_directed(torch.tensor(r)) for r in ([-1, 0, -1], [1, 0], [0, -1])],
        **{f"centre, {name}": centre(r, 3) for name, r in relations.items()},
        "centre, at once": centre(UNDIRECTED, 3, by_class=False),
        "both": said(lambda: token_classes(torch.tensor([1, 2, -1]))),
        "names": [str(class_identity("key")), str(cycle(2))],
    }


CASES: dict[str, Callable[[], Any]] = {
    "basis, separated": frame_numbers(True),
    "basis, shared": frame_numbers(False),
    "basis, errors": frame_errors,
    "basis, lower rank": frame_of_lower_rank,
    "basis, paths": all_paths,
    "basis, coefficients": coefficients,
    "names": names,
    "commutant": groups,
    "contexts": drawn,
    "contexts, selected": selected,
    **{f"lookups, {name}": lookup(name) for name in LOOKUPS},
    "lookups, errors": lookup_errors,
    "template": templates,
    "relations": relation_matrices,
}
