"""Names of the coordinate frame: selections and paths as frozen keys, never column numbers.

A *selection* is a 0/1 matrix on tokens or on positions. A *path* is a product of heads' output-
value maps, in the order in which they act; the empty product is the direct path. Together they
name a *direction* (imir.md sections 3 and 9): one basis weight, or one output weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from imir_detect._typing import HeadIndex
from imir_detect.errors import InvalidArgumentError

Space = Literal["token", "position"]
Kind = Literal["identity", "association", "shift"]


@dataclass(frozen=True, order=True)
class Selection:
    """A 0/1 matrix that is invariant under the task's symmetries.

    - `identity` on tokens or positions: I.
    - `association` on tokens: C[a, b] = 1 when the relation R pairs a with b.
    - `shift` on positions: M^offset, with M^j[i, i - j] = 1, "j back"; offset >= 1.

    >>> str(SHIFT_1), str(TOKEN_IDENTITY), str(ASSOCIATION)
    ('shift 1', 'identity', 'association')
    """

    space: Space
    kind: Kind
    offset: int = 0

    def __post_init__(self) -> None:
        allowed = {
            "identity": ("token", "position"),
            "association": ("token",),
            "shift": ("position",),
        }
        if self.kind not in allowed or self.space not in allowed[self.kind]:
            raise InvalidArgumentError(
                "no such selection",
                got=f"kind {self.kind!r} on {self.space!r}",
                wanted="identity on token or position, association on token, shift on position",
                todo="use one of the constants of imir_detect.frame.names",
            )
        if (self.kind == "shift") != (self.offset >= 1) or self.offset < 0:
            raise InvalidArgumentError(
                "a shift has an offset of at least 1, and nothing else has one",
                got=f"kind {self.kind!r} with offset {self.offset}",
                todo="use shift(j) with j >= 1",
            )

    def __str__(self) -> str:
        if self.kind == "shift":
            return f"shift {self.offset}"
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
