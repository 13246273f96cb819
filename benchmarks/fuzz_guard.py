"""Nothing that the fuzz does may touch the machine: writes outside its own folder are refused.

The refusal is what a user without the right to write there would get, so the product has to tell
it in words; the path is kept, so that a write that nobody asked for is seen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.chmod",
           "os.truncate", "shutil.rmtree")  # fmt: skip
CACHES = {"__pycache__", ".cache", ".config", ".triton"}  # libraries' own, which they may fill


class _State:
    root: str | None = None
    refused: list[str]


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    root = _State.root
    if root is None or (event != "open" and event not in CHANGES):
        return
    if event == "open":
        path, mode, flags = arguments
        writes = any(c in (mode or "") for c in "wax+") or (flags or 0) & WRITES
        paths = [path] if writes else []
    else:
        paths = [p for p in arguments[:2] if isinstance(p, str | bytes | os.PathLike)]
    for path in paths:
        if isinstance(path, int):
            continue
        real = os.path.realpath(os.fsdecode(path))
        own = real == "/dev/null" or (real + os.sep).startswith(root)
        own = own or bool(CACHES & set(Path(real).parts))
        own = own or (event == "os.mkdir" and os.path.isdir(real))  # there already
        if not own:
            _State.refused.append(real)
            raise PermissionError(13, "Permission denied", real)


_INSTALLED: list[bool] = []


@contextmanager
def guarded(root: Path) -> Iterator[list[str]]:
    """Refuse writes outside `root` in the block; gives the list of what was refused."""
    if not _INSTALLED:
        sys.addaudithook(_watch)
        _INSTALLED.append(True)
    _State.refused = []
    _State.root = os.path.realpath(root) + os.sep
    try:
        yield _State.refused
    finally:
        _State.root = None
