"""Names of the coordinate frame: selections and paths as frozen keys, never column numbers.

A *selection* is a 0/1 matrix on tokens or on positions. A *path* is a product of heads' output-
value maps, in the order in which they act; the empty product is the direct path. Together they
name a *direction* (the paper, section 3): one basis weight, or one output weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from imir_detect._typing import HeadIndex
from imir_detect.errors import InvalidArgumentError

Space = Literal["token", "position", "mixed"]
Kind = Literal["identity", "association", "shift", "association_back", "cycle", "ones"]


@dataclass(frozen=True, order=True)
class Selection:
    """A 0/1 matrix that is invariant under the task's symmetries.

    - `identity` on tokens or positions: I.
    - `association` on tokens: C[a, b] = 1 when the relation R pairs a with b.
    - `shift` on positions: M^offset, with M^j[i, i - j] = 1, "j back"; offset >= 1.

    An exact span (the theory's frame) also needs:
    - `identity` of one token class: `classes` names it.
    - `association_back`: C^T, for a directed relation.
    - `cycle` on positions: the circulant shift, (i - offset) modulo the number of positions.
    - `ones` between two groups, both named in `classes`: a token class or "position"; space
      "mixed" where one of them is the positions.

    >>> str(SHIFT_1), str(TOKEN_IDENTITY), str(ASSOCIATION)
    ('shift 1', 'identity', 'association')
    """

    space: Space
    kind: Kind
    offset: int = 0
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        allowed = {
            "identity": ("token", "position"),
            "association": ("token",),
            "shift": ("position",),
            "association_back": ("token",),
            "cycle": ("position",),
            "ones": ("token", "position", "mixed"),
        }
        if self.kind not in allowed or self.space not in allowed[self.kind]:
            raise InvalidArgumentError(
                "no such selection",
                got=f"kind {self.kind!r} on {self.space!r}",
                wanted="identity on token or position, association (or its transpose) on token, "
                "shift or cycle on position, ones between classes",
                todo="use one of the constants of imir_detect.frame.names",
            )
        if (self.kind in ("shift", "cycle")) != (self.offset >= 1) or self.offset < 0:
            raise InvalidArgumentError(
                "a shift has an offset of at least 1, and nothing else has one",
                got=f"kind {self.kind!r} with offset {self.offset}",
                todo="use shift(j) with j >= 1",
            )
        named = {"ones": (2,), "identity": (0, 1) if self.space == "token" else (0,)}
        if len(self.classes) not in named.get(self.kind, (0,)):
            raise InvalidArgumentError(
                "this selection does not take these classes",
                got=f"kind {self.kind!r} on {self.space!r} with classes {self.classes}",
                wanted="two for ones, one or none for a token identity, none otherwise",
                todo="name the classes that the selection stands between",
            )

    def __str__(self) -> str:
        if self.kind in ("shift", "cycle"):
            return f"{self.kind} {self.offset}"
        if self.classes:
            return f"{self.kind} of {' x '.join(self.classes)}"
        return self.kind if self.space == "token" else f"{self.kind} of positions"


TOKEN_IDENTITY = Selection("token", "identity")
POSITION_IDENTITY = Selection("position", "identity")
ASSOCIATION = Selection("token", "association")


def shift(offset: int) -> Selection:
    """M^offset: the selection "offset tokens back"."""
    return Selection("position", "shift", offset)


SHIFT_1 = shift(1)


@dataclass(frozen=True, order=True)
class Path:
    """A product of output-value maps in the order in which they act: () is the direct path.

    Layers must rise strictly along the path; anything else cannot happen in a transformer.

    >>> str(Path()), str(Path(((0, 1),))), str(Path(((0, 1), (2, 0))))
    ('direct', 'L0H1', 'L0H1>L2H0')
    """

    heads: tuple[HeadIndex, ...] = ()

    def __post_init__(self) -> None:
        layers = [layer for layer, _ in self.heads]
        if any(b <= a for a, b in pairwise(layers)):
            raise InvalidArgumentError(
                "layers must rise along a path",
                got=str(self.heads),
                wanted="heads of strictly later layers, in order",
                todo="order the heads by layer and take at most one of each layer",
            )

    @property
    def is_direct(self) -> bool:
        return not self.heads

    def then(self, head: HeadIndex) -> Path:
        """This path, carried on through one later head."""
        return Path((*self.heads, head))

    def __str__(self) -> str:
        return ">".join(f"L{layer}H{head}" for layer, head in self.heads) or "direct"


DIRECT = Path()


@dataclass(frozen=True, order=True)
class Direction:
    """One basis weight: `head` reads `selection` between a query path and a key path.

    An *output* weight has head None: the final residual, along `query` (the path that carries
    the token), is read out through the selection; `key` is then the direct path.
    """

    head: HeadIndex | None
    query: Path
    selection: Selection
    key: Path = DIRECT

    def __str__(self) -> str:
        if self.head is None:
            return f"out[{self.selection}] {self.query}"
        layer, head = self.head
        return f"L{layer}H{head}[{self.selection}] q:{self.query} k:{self.key}"
