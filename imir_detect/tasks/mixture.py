"""Several tasks in one stream: segments of a sequence, each by another task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.strict import NUMBER
from imir_detect.tasks.base import IGNORE, Axis, Batch, Ceiling
from imir_detect.tasks.checks import Rule, at_least, require, right_types
from imir_detect.tasks.family import LabelledTask, TaskDefaults, check_generator
from imir_detect.tasks.labels import ExpectedCircuit

Make = Callable[[LabelledTask, int, torch.Generator], tuple[Batch, ...]]


@dataclass(frozen=True)
class Mixture(TaskDefaults):
    """Segments [tag, sequence of a part, filling], one after the other.

    Every segment draws its part anew. The tag is a token of its own for each part, so that the
    law given the sequence is the part's; shorter parts are filled up with a filling token. The
    parts share the tokens below `shared`, then come the tags and the filling.

    - `parts`: tasks, or registered names (with default knobs). Only consecutive positions.
    - `weights`: how often each part is drawn, up to a factor; None: alike.
    - `segments`: segments of a sequence.

    >>> Mixture(segments=1).length
    25
    """

    parts: tuple[Any, ...] = ("recall", "offset_copy")
    weights: tuple[float, ...] | None = None
    segments: int = 2

    name = "mixture"

    def __post_init__(self) -> None:
        require(self.name, right_types(self))
        require(self.name, at_least(self, segments=1))
        some = Rule(len(self.parts) >= 1, "no parts", "at least one", "name some tasks")
        require(self.name, [some])
        weights = self.shares
        rules = [
            Rule(
                len(weights) == len(self.parts)
                and all(NUMBER.holds(w) and w >= 0 for w in weights)
                and any(weights),
                f"weights={self.weights} for {len(self.parts)} parts",
                "a number for every part, none below 0 and not all 0",
                "mend weights",
            ),
        ]
        require(self.name, rules)
        fits = Rule(
            len(self.tasks) == len(self.parts)
            and all(part.n_positions == part.length for part in self.tasks),
            f"parts={self.parts}",
            "labelled tasks with consecutive positions",
            "choose other parts, or offsets='consecutive'",
        )
        require(self.name, [fits])

    label_noise = 0.0  # the parts carry their own

    @cached_property
    def tasks(self) -> tuple[LabelledTask, ...]:
        """The parts as tasks."""
        from imir_detect.tasks import make_task

        made = (make_task(part) if isinstance(part, str) else part for part in self.parts)
        return tuple(part for part in made if isinstance(part, LabelledTask))

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights; 1 for every part where none are given."""
        return (1.0,) * len(self.parts) if self.weights is None else self.weights

    @property
    def shared(self) -> int:
        """Tokens that the parts share: the largest of their vocabularies."""
        return max(part.vocab_size for part in self.tasks)

    @property
    def vocab_size(self) -> int:
        return self.shared + len(self.parts) + 1

    @property
    def filling(self) -> int:
        """The token that fills up short segments."""
        return self.vocab_size - 1

    @property
    def segment_length(self) -> int:
        return 1 + max(part.length for part in self.tasks)

    @property
    def length(self) -> int:
        return self.segments * self.segment_length

    @property
    def control(self) -> bool:  # type: ignore[override]
        return all(part.control for part in self.tasks)

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        return tuple(
            replace(circuit, covers=f"{part.name}: {circuit.covers}")
            for part in self.tasks
            for circuit in part.expected_circuits
        )

    def sample(self, n: int, *, generator: torch.Generator) -> Batch:
        check_generator(generator)
        return self._join([self._segment(n, generator, _sample) for _ in range(self.segments)])

    def probe(self, axis: Axis, n: int, *, generator: torch.Generator) -> Batch | None:
        """Every part's own probe; None where a part has none."""
        if any(part.probe(axis, 1, generator=torch.Generator()) is None for part in self.tasks):
            return None

        def one(part: LabelledTask, m: int, g: torch.Generator) -> tuple[Batch, ...]:
            batch = part.probe(axis, m, generator=g)
            assert batch is not None
            return (batch,)

        return self._join([self._segment(n, generator, one) for _ in range(self.segments)])

    def pairs(self, n: int, *, generator: torch.Generator) -> tuple[Batch, Batch]:
        """The part's own pairs in the last segment, after segments that both share."""
        before = [self._segment(n, generator, _sample)[0] for _ in range(self.segments - 1)]
        for batch in before:
            batch.targets.fill_(IGNORE)
            batch.answer_position.fill_(-1)

        def both(part: LabelledTask, m: int, g: torch.Generator) -> tuple[Batch, ...]:
            return part.pairs(m, generator=g)

        clean, corrupt = self._segment(n, generator, both)
        return self._join([*([b] for b in before), [clean]]), self._join(
            [*([b] for b in before), [corrupt]]
        )

    def _segment(self, n: int, g: torch.Generator, make: Make) -> list[Batch]:
        """One segment of n sequences, or as many versions of it as `make` gives."""
        edges = torch.tensor(self.shares, dtype=torch.float64).cumsum(0)
        uniform = torch.rand(n, generator=g, dtype=torch.float64) * edges[-1]
        kind = torch.bucketize(uniform, edges, right=True).clamp(max=len(edges) - 1)
        versions: list[Batch] = []
        for index, part in enumerate(self.tasks):
            rows = (kind == index).nonzero()[:, 0]
            made = make(part, len(rows), g)
            while len(versions) < len(made):
                versions.append(self._blank(n))
            inside = slice(1, 1 + part.length)
            for version, batch in zip(versions, made, strict=True):
                version.tokens[rows, 0] = self.shared + index
                version.tokens[rows, inside] = batch.tokens
                version.targets[rows, inside] = batch.targets
                place = batch.answer_position
                version.answer_position[rows, inside] = torch.where(place < 0, -1, place + 1)
        return versions

    def _blank(self, n: int) -> Batch:
        shape = (n, self.segment_length)
        return Batch(
            torch.full(shape, self.filling), torch.full(shape, IGNORE), torch.full(shape, -1)
        )

    def _join(self, segments: Sequence[Sequence[Batch]]) -> Batch:
        parts = [segment[0] for segment in segments]
        starts = [i * self.segment_length for i in range(len(parts))]
        places = [
            torch.where(part.answer_position < 0, -1, part.answer_position + start)
            for part, start in zip(parts, starts, strict=True)
        ]
        return Batch(
            torch.cat([part.tokens for part in parts], dim=1),
            torch.cat([part.targets for part in parts], dim=1),
            torch.cat(places, dim=1),
        )

    def law(self, batch: Batch) -> Float[Tensor, "asked vocab"] | None:
        """Each segment by the law of the part that its tag names; None where a part has none."""
        batch = batch.to("cpu")
        asked = batch.targets != IGNORE
        law = torch.zeros(*batch.tokens.shape, self.vocab_size, dtype=torch.float64)
        for start in range(0, self.length, self.segment_length):
            tag = batch.tokens[:, start] - self.shared
            for index, part in enumerate(self.tasks):
                rows = (tag == index).nonzero()[:, 0]
                inside = slice(start + 1, start + 1 + part.length)
                piece = Batch(*(t[rows, inside] for t in _fields(batch)))
                own = part.law(piece)
                if own is None:
                    return None
                row, place = (piece.targets != IGNORE).nonzero(as_tuple=True)
                law[rows[row], start + 1 + place, : part.vocab_size] = own
        return law[asked]

    def ceiling(self) -> Ceiling:
        """Not closed; `law` gives it on samples."""
        return Ceiling(None, None, None, None, None, None)

    def token_name(self, token: int) -> str:
        if token < self.shared:
            return f"t{token}"
        tag = token - self.shared
        return "." if tag == len(self.parts) else f"<{self.tasks[tag].name}>"


def _sample(part: LabelledTask, n: int, generator: torch.Generator) -> tuple[Batch, ...]:
    return (part.sample(n, generator=generator),)


def _fields(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    return batch.tokens, batch.targets, batch.answer_position
