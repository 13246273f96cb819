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


def test_problems_are_collected_and_raised_as_one() -> None:
    from imir_detect.errors import UnsupportedModelError, collecting, raise_all, some

    found: list[ImirError] = []
    raise_all(found)
    with collecting(found):
        raise UnsupportedModelError("first", got="a")
    with pytest.raises(UnsupportedModelError, match=r"^first; got a$"):
        raise_all(found)
    with collecting(found):
        raise_all([InvalidArgumentError("second"), InvalidArgumentError("third")])
    with pytest.raises(ImirError) as caught:
        raise_all(found)
    assert str(caught.value) == "3 problems:\n(1) first; got a\n(2) second\n(3) third"
    assert [problem.what for problem in caught.value.problems] == ["first", "second", "third"]
    assert found[0].problems == (found[0],)
    with pytest.raises(ZeroDivisionError), collecting(found):
        _ = 1 / 0
    assert some([1, 2, 3, 4], most=2) == "1, 2 and 2 more"
    assert some([1, 2], most=2, joint="; ") == "1; 2"
