"""Errors with four parts: what went wrong, what was got, what was wanted, what to do next.

Every error that a user can cause is an `ImirError`, so that the command line can print one line
and leave, and a notebook user can catch them all. The built-in class each one also derives from
says what kind of fault it is.
"""

from __future__ import annotations


class ImirError(Exception):
    """Root of the package's errors.

    Parameters are the four parts of the message; `got`, `wanted` and `todo` may be left out where
    they would repeat `what`.

    >>> print(ImirError("the relation does not fit", got="9 tokens", wanted="12", todo="pad it"))
    the relation does not fit; got 9 tokens; wanted 12; next step: pad it
    """

    def __init__(self, what: str, *, got: str = "", wanted: str = "", todo: str = "") -> None:
        self.what, self.got, self.wanted, self.todo = what, got, wanted, todo
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
