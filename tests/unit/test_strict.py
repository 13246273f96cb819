"""Strict JSON, regular files only, and shapes that name every place where a file departs."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imir_detect.errors import InvalidArgumentError
from imir_detect.strict import (
    ANY,
    COUNT,
    FLAG,
    NUMBER,
    POSITIVE,
    SHARE,
    TEXT,
    WHOLE,
    check_shape,
    either,
    json_text,
    one_of,
    or_null,
    parse_json,
    read_file,
    read_json,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


@given(JSON)
def test_what_is_written_is_read_back_the_same(value: Any) -> None:
    assert parse_json(json_text(value)) == value
    assert parse_json(json_text(value, indent=None).encode()) == json.loads(json.dumps(value))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": NaN}', "NaN is no JSON"),
        ("[-Infinity]", "-Infinity is no JSON"),
        ("[1e999]", "the number 1e999 is too large"),
        ("9" * 50, "a whole number of 50 digits is too large"),
        ("9" * 10_000, "a whole number of 10000 digits"),
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "the name 'c' stands twice"),
        ("[" * 100_000, "nested without end"),
        ('{"a":' * 100_000, "nested without end"),
        ("", "Expecting value"),
        ("\ufeff{}", "BOM"),
        ("{} {}", "Extra data"),
        (b"\xff\xfe", "invalid start byte"),
        (b"\x80\x04.", "invalid start byte"),
    ],
)
def test_what_is_no_strict_json_is_refused(text: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_json(text)


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {1, 2}, {(1,): 2}])
def test_what_json_cannot_hold_is_not_written(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"cannot be written as JSON; got .*; wanted f"):
        json_text(value)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidArgumentError, match="cannot be written as JSON"):
        json_text(endless)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"{}")
    assert read_json(tmp_path / "good") == {}
    with pytest.raises(OSError, match="it is a folder"):
        read_file(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(OSError, match="it is no regular file"):
            read_file(path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        read_file(tmp_path / "loop")
    with pytest.raises(OSError, match="2 bytes, more than 1"):
        read_file(tmp_path / "good", largest=1)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "absent")


def test_every_departure_from_a_shape_is_named() -> None:
    shape = {"a": [WHOLE], "b": {str: SHARE}, "c": (TEXT, FLAG), "d?": NUMBER, "e": COUNT}
    value = {"a": [1, "x"], "b": {"p": 2}, "c": ["y"], "d": None, "more": 1}
    with pytest.raises(ValueError, match="a") as caught:
        check_shape(value, shape)
    assert str(caught.value) == (
        "a[1] is 'x', not a whole number; b.p is 2, not a number in [0, 1]; "
        "c has 1 entries, not 2; d is null, not a finite number; e is missing"
    )
    check_shape({"a": [], "b": {}, "c": ["", True], "e": 0}, shape)
    with pytest.raises(ValueError, match="the card is a list, not a mapping"):
        check_shape([], shape, "the card")
    with pytest.raises(ValueError, match="a is a mapping, not a list; c is null, not a list"):
        check_shape({"a": {}, "b": {}, "c": None, "e": 1}, shape)
    with pytest.raises(ValueError, match=r"and 4 more$"):
        check_shape([0] * 10, [TEXT])


@pytest.mark.parametrize(
    ("kind", "good", "bad", "said"),
    [
        (WHOLE, (0, -3), (True, 1.0, "1", None), "a whole number"),
        (COUNT, (0, 3), (-1, True), "a whole number of 0 or more"),
        (POSITIVE, (1,), (0, False), "a whole number above 0"),
        (NUMBER, (0, 1.5), (float("nan"), float("inf"), True), "a finite number"),
        (SHARE, (0, 1, 0.5), (1.01, -0.1, float("nan")), r"a number in \[0, 1\]"),
        (TEXT, ("",), (b"", 1), "text"),
        (FLAG, (True,), (0, None), "true or false"),
        (ANY, (None, [], 1), (), ""),
        (one_of("a", "b"), ("a",), ("c", None, ["a"]), "one of a, b"),
        (one_of(1), (1,), (True, 1.0, 2), "1"),
        (either(TEXT, COUNT), ("a", 1), (-1, None), "text or a whole number of 0 or more"),
        (or_null(TEXT), (None, ""), (1,), "text or null"),
    ],
)
def test_kinds_hold_for_what_they_say(kind: Any, good: tuple, bad: tuple, said: str) -> None:
    for value in good:
        check_shape(value, kind)
    for value in bad:
        with pytest.raises(ValueError, match=f"the file is .*, not {said}$"):
            check_shape(value, kind)
