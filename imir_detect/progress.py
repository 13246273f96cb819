"""Progress bars: over two seconds only, on a terminal or in a notebook, silenced as a whole."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

DELAY = 2.0  # seconds of work before a bar shows
_silent = False


def silence(on: bool = True) -> None:
    """Show no bar from now on (`--quiet`), or show them again."""
    global _silent
    _silent = on


def silent() -> bool:
    """Whether bars, and what else tells of progress, are silenced."""
    return _silent


def bar(
    items: Iterable[Any] | None = None,
    *,
    what: str,
    total: int | None = None,
    initial: int = 0,
    show: bool = True,
) -> Any:
    """A tqdm bar around `items`, or one that its caller moves with `update`.

    - what: a word or two in front of the bar.
    - total, initial: steps in all, and those done before (a run that resumes).
    - show: False for none, as a caller's own `progress=False` asks.

    It shows once it has run for two seconds, and goes when it is done. Into a pipe or a file
    nothing is written.

    >>> sum(bar([1, 2, 3], what="adding"))
    6
    """
    notebook = "ipykernel" in sys.modules
    if notebook:
        from tqdm.auto import tqdm
    else:
        from tqdm import tqdm
    off = True if _silent or not show else False if notebook else None  # None: tqdm asks the stream
    return tqdm(
        items, desc=what, total=total, initial=initial, disable=off, leave=False, delay=DELAY
    )
