"""What a task says about itself as data: symmetries, assumptions, the circuits that solve it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from imir_detect.errors import InvalidArgumentError

UnitKind = Literal[
    "shift",
    "match",
    "anti_match",
    "no_self_match",
    "copy",
    "associate",
    "suppress",
    "gather",
    "place",
]
UNIT_KINDS: tuple[UnitKind, ...] = (
    "shift",
    "match",
    "anti_match",
    "no_self_match",
    "copy",
    "associate",
    "suppress",
    "gather",
    "place",
)
Port = Literal["Q", "K", "V", "out"]
Edge = tuple[str, str, Port]
PORTS: tuple[Port, ...] = ("Q", "K", "V", "out")
LOGITS = "logits"  # where every circuit ends
WRITERS = ("copy", "associate", "suppress")  # a head's output; its attention is another unit


@dataclass(frozen=True)
class Symmetry:
    """A group of relabellings that leaves a task's law unchanged (`holds`), or would be one.

    `generators` are permutations as tuples: entry i is the image of i. In space "token" they act
    on the vocabulary, tokens and targets alike; in space "position" on the start of one block,
    counted from the first place where it may stand. Generators suffice: a law that each of them
    leaves alone is invariant under the whole group. A symmetry that does not hold says why, and
    its generators are kept, so that a test can watch it fail.
    """

    name: str
    space: Literal["token", "position"]
    generators: tuple[tuple[int, ...], ...]
    holds: bool = True
    why_not: str = ""

    def __post_init__(self) -> None:
        for generator in self.generators:
            if sorted(generator) != list(range(len(generator))):
                raise InvalidArgumentError(
                    f"a generator of the symmetry {self.name!r} is not a permutation",
                    got=str(generator),
                    wanted=f"every number below {len(generator)} once",
                    todo="give the image of every index",
                )
        if self.holds == bool(self.why_not):
            raise InvalidArgumentError(
                "a symmetry says why exactly when it does not hold",
                got=f"holds={self.holds}, why_not={self.why_not!r}",
                todo="set one of the two",
            )


def permutations_of(classes: Sequence[Sequence[int]], size: int) -> tuple[tuple[int, ...], ...]:
    """Generators of all permutations inside each class: a swap and a full cycle.

    >>> permutations_of([[0, 1, 2]], 4)
    ((1, 0, 2, 3), (1, 2, 0, 3))
    """
    found = []
    for members in classes:
        for count in {2, len(members)} if len(members) > 1 else ():
            image = list(range(size))
            for a, b in zip(members[:count], (*members[1:count], members[0]), strict=True):
                image[a] = b
            found.append(tuple(image))
    return tuple(sorted(set(found)))


@dataclass(frozen=True)
class Assumptions:
    """Which of the theory's assumptions hold; None where there is nothing to assume.

    - `r_invariant`: permutations of the common tokens that preserve R leave the law unchanged.
    - `independent_offsets`: every block starts at an independent uniform position.
    - `lexinvariant`: permutations of the rare tokens leave the law unchanged.
    """

    r_invariant: bool | None
    independent_offsets: bool
    lexinvariant: bool | None


@dataclass(frozen=True)
class ExpectedUnit:
    """One part of a circuit; `stage` is the layer in the shallowest model, counted from 0.

    `kind` is a word of the circuit grammar (shift, match, ...), or one of two that no unit of the
    grammar names: "gather", a head that averages what it attends to, and "place", a preference
    for certain places of a block, read from the positions. `offset` is a shift's.
    """

    name: str
    kind: UnitKind
    stage: int
    offset: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in UNIT_KINDS or (self.kind == "shift") != (self.offset is not None):
            raise InvalidArgumentError(
                "no such unit",
                got=f"kind={self.kind!r}, offset={self.offset}",
                wanted=f"one of {', '.join(UNIT_KINDS)}; an offset for a shift alone",
                todo="mend the unit",
            )


@dataclass(frozen=True)
class ExpectedCircuit:
    """A circuit that solves a task, or the part of it that `covers` names.

    - `kind`: the kind under which a report lists it.
    - `edges`: (source, target, port): `source` writes what `target` reads as query, key or value;
      the last unit goes to ("logits", "out"). An attention unit (shift, match) and the writing
      unit (copy, ...) of the same stage that it feeds through "V" may be one head.
    - `aids`: units that help without being necessary.
    A task lists alternatives: each of its circuits by itself does what it covers.
    """

    kind: str
    units: tuple[ExpectedUnit, ...]
    edges: tuple[Edge, ...]
    aids: tuple[ExpectedUnit, ...] = ()
    covers: str = "every question"

    def __post_init__(self) -> None:
        everything = (*self.units, *self.aids)
        stage = {unit.name: unit.stage for unit in everything}
        writers = {unit.name for unit in everything if unit.kind in WRITERS}
        for source, target, port in self.edges:
            rise = stage.get(target, -1) - stage.get(source, 10**6)
            later = target == LOGITS or rise > 0 or (rise == 0 and target in writers)
            if source not in stage or port not in PORTS or not later:
                raise InvalidArgumentError(
                    f"an edge of the expected circuit {self.kind!r} does not fit",
                    got=str((source, target, port)),
                    wanted=f"two of {', '.join(stage)} of rising stage, or {LOGITS}",
                    todo="mend the edge",
                )

    @property
    def layers(self) -> int:
        """Layers of the shallowest model that can hold it."""
        return 1 + max(unit.stage for unit in self.units)

    def __str__(self) -> str:
        parts = [f"{self.kind} ({self.layers} layer{'s' * (self.layers > 1)}): {self.covers}"]
        for unit in self.units:
            what = f"{unit.kind} {unit.offset}" if unit.kind == "shift" else unit.kind
            parts.append(f"  layer {unit.stage}: {unit.name} [{what}]")
        parts += [f"  {a} -> {b} ({port})" for a, b, port in self.edges]
        parts += [f"  aid: {unit.name} [{unit.kind}]" for unit in self.aids]
        return "\n".join(parts)


def at_places(circuit: ExpectedCircuit, name: str, matches: Sequence[str]) -> ExpectedCircuit:
    """The same circuit, its matches confined to places of a kind, which it reads as keys.

    Consecutive blocks need it where a token may stand at any place of a block: "one back" does
    not stop at the block's start.
    """
    edges: list[Edge] = [(name, match, "K") for match in matches]
    return replace(
        circuit,
        units=(ExpectedUnit(name, "place", 0), *circuit.units),
        edges=(*edges, *circuit.edges),
    )


# -- circuits that several tasks share ------------------------------------------------------------


def direct_copy(name: str, offset: int, kind: str) -> ExpectedCircuit:
    """One head that attends to a fixed offset and copies; offset 0: the token's own place."""
    if offset == 0:
        return ExpectedCircuit(
            kind, (ExpectedUnit("own token", "copy", 0),), (("own token", LOGITS, "out"),)
        )
    units = (ExpectedUnit(name, "shift", 0, offset), ExpectedUnit("copy", "copy", 0))
    return ExpectedCircuit(kind, units, ((name, "copy", "V"), ("copy", LOGITS, "out")))


def induction(prefix: int = 1, *, gap: int = 0, covers: str = "every question") -> ExpectedCircuit:
    """Shifts feed matches of the last `prefix` tokens; what follows the earlier copy is copied.

    `gap` tokens stand between the prefix and the answer (0 for plain induction).
    """
    units: list[ExpectedUnit] = []
    edges: list[Edge] = []
    needed = sorted({*range(1 + gap, prefix + gap + 1), *range(max(1, gap), prefix + gap)})
    units += [ExpectedUnit(f"{j} back", "shift", 0, j) for j in needed]
    for back in range(prefix):
        match = f"match {back + 1}"
        units.append(ExpectedUnit(match, "match", 1))
        edges.append((f"{back + 1 + gap} back", match, "K"))
        if back + gap:
            edges.append((f"{back + gap} back", match, "Q"))
        edges.append((match, "copy", "V"))
    units.append(ExpectedUnit("copy", "copy", 1))
    edges.append(("copy", LOGITS, "out"))
    kind = (
        "skip" if gap and prefix == 1 else "induction" if prefix == 1 else "induction_long_prefix"
    )
    return ExpectedCircuit(kind, tuple(units), tuple(edges), covers=covers)


def pointer_induction(covers: str = "every question") -> ExpectedCircuit:
    """The query finds its earlier copy and takes that place's position; one after it is copied."""
    units = (
        ExpectedUnit("earlier copy", "match", 0),
        ExpectedUnit("one after it", "shift", 1, -1),
        ExpectedUnit("copy", "copy", 1),
    )
    edges: tuple[Edge, ...] = (
        ("earlier copy", "one after it", "Q"),
        ("one after it", "copy", "V"),
        ("copy", LOGITS, "out"),
    )
    return ExpectedCircuit("pointer_induction", units, edges, covers=covers)


def in_weights(covers: str) -> ExpectedCircuit:
    """The association R, read out directly or through a head that attends to its own place."""
    unit = ExpectedUnit("R of the query", "associate", 0)
    return ExpectedCircuit("in_weights", (unit,), ((unit.name, LOGITS, "out"),), covers=covers)
