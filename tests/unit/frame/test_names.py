"""Selections, paths and directions are checked when they are made, and print as people write."""

import pytest

from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.names import (
    DIRECT,
    SHIFT_1,
    TOKEN_IDENTITY,
    Direction,
    Path,
    Selection,
    shift,
)


def test_directions_print_as_people_write_them() -> None:
    previous = Path(((0, 0),))
    assert str(Direction((1, 0), DIRECT, TOKEN_IDENTITY, previous)) == (
        "L1H0[identity] q:direct k:L0H0"
    )
    assert str(Direction(None, previous.then((1, 1)), TOKEN_IDENTITY)) == "out[identity] L0H0>L1H1"
    assert str(shift(3)) == "shift 3"


def test_names_are_keys() -> None:
    assert {shift(1): "a"}[SHIFT_1] == "a"
    assert Path(((0, 1),)).then((2, 0)) == Path(((0, 1), (2, 0)))


@pytest.mark.parametrize("heads", [((1, 0), (0, 0)), ((1, 0), (1, 1))])
def test_layers_must_rise_along_a_path(heads: tuple) -> None:
    with pytest.raises(InvalidArgumentError, match="layers must rise"):
        Path(heads)


@pytest.mark.parametrize(
    ("space", "kind", "offset", "text"),
    [
        ("token", "shift", 1, "no such selection"),
        ("position", "association", 0, "no such selection"),
        ("position", "shift", 0, "offset of at least 1"),
        ("token", "identity", 2, "offset of at least 1"),
    ],
)
def test_impossible_selections_are_refused(space: str, kind: str, offset: int, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        Selection(space, kind, offset)  # type: ignore[arg-type]
