"""Errors with four parts: what went wrong, what was got, what was wanted, what to do next.

Every error that a user can cause is an `ImirError`, so that the command line can print one line
and leave, and a notebook user can catch them all. The built-in class each one also derives from
says what kind of fault it is. Checks that stand side by side are all made before anything is
raised: `collecting` gathers what they find, and `raise_all` raises it as one error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class ImirError(Exception):
    """Root of the package's errors.

    Parameters are the four parts of the message; `got`, `wanted` and `todo` may be left out where
    they would repeat `what`. `problems`: the errors that this one lists; itself where it is one.

    >>> print(ImirError("the relation does not fit", got="9 tokens", wanted="12", todo="pad it"))
    the relation does not fit; got 9 tokens; wanted 12; next step: pad it
    """

    def __init__(self, what: str, *, got: str = "", wanted: str = "", todo: str = "") -> None:
        self.what, self.got, self.wanted, self.todo = what, got, wanted, todo
        self.problems: tuple[ImirError, ...] = (self,)
        parts = [what]
        if got:
            parts.append(f"got {got}")
        if wanted:
            parts.append(f"wanted {wanted}")
        if todo:
            parts.append(f"next step: {todo}")
        super().__init__("; ".join(parts))


class UnsupportedModelError(ImirError, NotImplementedError):
    """The model has a feature that this package does not read; the message names it."""


class InvalidWeightsError(ImirError, ValueError):
    """The model's weights cannot be analysed: not finite, wrong shape, not floating point."""


class InvalidArgumentError(ImirError, ValueError):
    """An argument does not fit; the message says what would."""


class UnknownNameError(ImirError, KeyError):
    """A task, model or method of that name is not registered."""

    def __str__(self) -> str:  # KeyError would print the repr of its argument
        return str(self.args[0])


class UnreadableFileError(ImirError, OSError):
    """A file is missing, truncated, hostile or of another format."""

    def __str__(self) -> str:
        return str(self.args[0])


class UnwritableFileError(ImirError, OSError):
    """A file cannot be written: the disk is full, the folder is not ours, a name is taken."""

    def __str__(self) -> str:
        return str(self.args[0])


class BusyFolderError(ImirError, OSError):
    """Another run is at work in this folder."""

    def __str__(self) -> str:
        return str(self.args[0])


class FrameMismatchError(ImirError, ValueError):
    """Two objects that belong to different frames were mixed."""


@contextmanager
def collecting(problems: list[ImirError]) -> Iterator[None]:
    """Put what the block raises on the list, so that the next check is made all the same.

    >>> found: list[ImirError] = []
    >>> with collecting(found):
    ...     raise ImirError("no such thing")
    >>> found
    [ImirError('no such thing')]
    """
    try:
        yield
    except ImirError as error:
        problems.extend(error.problems)


def raise_all(problems: Sequence[ImirError]) -> None:
    """Raise every problem at once: none raises nothing, one is raised as it is, and more as one
    numbered list, of their class where they share one.

    >>> raise_all([ImirError("first"), ImirError("second")])
    Traceback (most recent call last):
    imir_detect.errors.ImirError: 2 problems:
    (1) first
    (2) second
    """
    if not problems:
        return
    if len(problems) == 1:
        raise problems[0]
    kinds = {type(problem) for problem in problems}
    kind = kinds.pop() if len(kinds) == 1 else ImirError
    lines = [f"({i}) {problem}" for i, problem in enumerate(problems, 1)]
    error = kind("\n".join([f"{len(problems)} problems:", *lines]))
    error.problems = tuple(problems)
    raise error


def some(items: Sequence[object], most: int = 6, joint: str = ", ") -> str:
    """The first few of a list of findings, and how many more there are.

    >>> some(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    shown = joint.join(map(str, items[:most]))
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"
