"""What long runs ask of a disk: files whole or not at all, and folders that one run holds.

A run that is killed at any moment is resumed by the same command: it finds what was finished, and
no half of anything. A second run in its folder, or one of another configuration, is refused.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from imir_detect.errors import BusyFolderError, InvalidArgumentError, UnwritableFileError
from imir_detect.strict import json_text, parse_json

NO_LOCKS = (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EBADF, errno.EINVAL)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a kill leaves the old one or the new one, never a part of it.

    Parts of this file that killed processes left beside it are removed. Raises
    UnwritableFileError on a full disk and the like; the old file is then as it was.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        part.unlink(missing_ok=True)
        with part.open("xb") as stream:  # a link that someone laid there is never followed
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with suppress(OSError):
            part.unlink()


def discard(path: Path) -> None:
    """Remove a file, if it is there, and the parts of it that killed processes left."""
    path.unlink(missing_ok=True)
    _sweep(path)


@contextmanager
def hold(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a folder, so that no other run works in it; made where it is missing.

    The kernel's own lock on the folder: no lock file, and nothing stale after a kill. With `wait`,
    waits for another run to end, else raises BusyFolderError. Where the system has no such lock
    (Windows, some network drives) it does nothing: writes are atomic there, too.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY) if os.name == "posix" else None
    except OSError as error:
        raise _unwritable(folder, error) from error
    if handle is None:
        yield
        return
    try:
        _lock(handle, folder, wait)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path, wait: bool) -> None:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        raise BusyFolderError(
            f"another run is at work in {folder}",
            got="a folder that another process holds",
            wanted="one run a folder at a time",
            todo="wait until it has ended, or use another folder",
        ) from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def refuse_other(where: Path, stored: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raise InvalidArgumentError, naming every setting that differs, where `ours` is not what the
    run in this place was begun with."""
    there, here = (_flat(parse_json(json_text(settings))) for settings in (stored, ours))
    names = sorted(k for k in {*there, *here} if there.get(k) != here.get(k))
    if names:
        raise InvalidArgumentError(
            f"{where} belongs to another run",
            got=", ".join(f"{name}={here.get(name)!r}" for name in names),
            wanted=", ".join(f"{name}={there.get(name)!r}" for name in names),
            todo="use another folder, or remove this one to start over",
        )


def _flat(settings: Mapping[str, Any], stem: str = "") -> dict[str, Any]:
    """Settings by dotted names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        nested = isinstance(value, Mapping)
        found |= _flat(value, f"{stem}{name}.") if nested else {f"{stem}{name}": value}
    return found


def _unwritable(path: Path, error: OSError) -> UnwritableFileError:
    return UnwritableFileError(
        f"cannot write {path}",
        got=f"{type(error).__name__}: {error.strerror or error}",
        wanted="space on the disk and leave to write there; what was there is as it was",
        todo="mend that, and start the same command again",
    )


def _sweep(path: Path) -> None:
    """Remove what processes that are no more left of this file."""
    if os.name != "posix":
        return
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        number = part.name.split(".")[-2]
        if number.isdigit() and not _alive(int(number)):
            part.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
