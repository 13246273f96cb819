"""Circuits written down by hand in a frame's coordinates: 2-hop induction and its aids.

The canonical four of the paper's section 6: a previous-token head, a match of the query, a match of
what that found, and the read-out. The first token attends to itself alone in layer 0, so a match
also finds it under its own name: alone, the four fail where the first block is the query's or the
next one. Those exclude each other, so strong canonical units are right (ties wrong) on exactly
1 - 2/n of the sequences if pi is one cycle. Where pi^2(q) = q, the first failure mostly gives the
right answer all the same, which brings permutations without fixed points within 1 % of (1 - 1/n)^2:
1 - 2/n + p (n - 2) / (n (n - 1)), p the chance of that. Two no-self-match units, which
lower the attention to the position that shows the token itself, mend both.
"""

from __future__ import annotations

from collections.abc import Mapping

from imir_detect.errors import FrameMismatchError
from imir_detect.frame.basis import Coefficients, Frame
from imir_detect.frame.names import DIRECT, SHIFT_1, TOKEN_IDENTITY, Direction, Path
from imir_detect.models.coordinates import zeros

PREVIOUS = Path(((0, 0),))
FIRST_FOUND = Path(((1, 0),))
SECOND_FOUND = Path(((2, 0),))

CANONICAL = (
    Direction((0, 0), DIRECT, SHIFT_1, DIRECT),
    Direction((1, 0), DIRECT, TOKEN_IDENTITY, PREVIOUS),
    Direction((2, 0), FIRST_FOUND, TOKEN_IDENTITY, PREVIOUS),
    Direction(None, SECOND_FOUND, TOKEN_IDENTITY),
)
AIDS = (
    Direction((1, 0), DIRECT, TOKEN_IDENTITY, DIRECT),
    Direction((2, 0), FIRST_FOUND, TOKEN_IDENTITY, DIRECT),
)


def from_directions(frame: Frame, values: Mapping[Direction, float]) -> Coefficients:
    """Coefficients that are zero but on the given directions."""
    place = {direction: i for i, direction in enumerate(frame.directions())}
    missing = [str(d) for d in values if d not in place]
    if missing:
        raise FrameMismatchError(
            "the frame has no such directions",
            got=", ".join(missing),
            wanted="directions of Frame.directions()",
            todo="add the selection or the layer to the frame",
        )
    start = zeros(frame)
    flat = start.flat()
    for direction, value in values.items():
        flat[place[direction]] = value
    return start.like(flat)


def two_hop(
    frame: Frame, *, match: float = 200.0, readout: float = 20.0, aids: bool = False
) -> Coefficients:
    """The canonical four with scores of `match` nats, and with `aids` the two no-self-matches.

    The aids' scores are -match: for the first token, which shows itself, they cancel the match.
    """
    values = dict.fromkeys(CANONICAL[:3], match) | {CANONICAL[3]: readout}
    if aids:
        values |= dict.fromkeys(AIDS, -match)
    return from_directions(frame, values)
