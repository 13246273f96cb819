"""Every error says what, got, wanted, next step, in that order, and can be caught as one kind."""

import pytest

from imir_detect.errors import (
    BusyFolderError,
    FrameMismatchError,
    ImirError,
    InvalidArgumentError,
    InvalidWeightsError,
    UnknownNameError,
    UnreadableFileError,
    UnsupportedModelError,
    UnwritableFileError,
)


def test_the_four_parts_come_in_order() -> None:
    error = ImirError("a", got="b", wanted="c", todo="d")
    assert str(error) == "a; got b; wanted c; next step: d"


def test_parts_left_out_leave_no_trace() -> None:
    assert str(ImirError("a", todo="d")) == "a; next step: d"


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (InvalidArgumentError, ValueError),
        (InvalidWeightsError, ValueError),
        (UnsupportedModelError, NotImplementedError),
        (UnknownNameError, KeyError),
        (UnreadableFileError, OSError),
        (UnwritableFileError, OSError),
        (BusyFolderError, OSError),
        (FrameMismatchError, ValueError),
    ],
)
def test_each_kind_is_both_ours_and_the_builtin_one(kind: type, builtin: type) -> None:
    error = kind("what", got="got")
    assert isinstance(error, ImirError)
    assert isinstance(error, builtin)
    assert str(error) == "what; got got"  # KeyError and OSError would change the text
