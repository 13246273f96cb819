"""One model over its checkpoints: which there are, and what every one of them holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imir_detect.circuits.core import IN_CONTEXT
from imir_detect.errors import ImirError, InvalidArgumentError, UnreadableFileError
from imir_detect.frame.names import SHIFT_1
from imir_detect.pipeline import detect_circuits
from imir_detect.result import Report
from imir_detect.table import Table
from imir_detect.weights.sources import STATE_SUFFIXES, hub_answers, open_model
from imir_detect.weights.store import CARD_FILE

CONFIG = "config.json"
SCORES = ("previous_token", "duplicate_token", "induction")
UNITS = ("shift", "match", "copy", "associate")
COLUMNS = (
    "checkpoint",
    "label",
    *("icl", "iwl", "mixed", "none"),
    *("in_context", "in_weights"),
    *SCORES,
    *UNITS,
)


@dataclass(frozen=True)
class Checkpoint:
    """A model at one time: its name, and what loads it."""

    name: str
    load: Callable[[], Any]


def list_checkpoints(source: str | Path) -> tuple[Checkpoint, ...]:
    """The checkpoints that `source` names, in order of the numbers in their names:

    - a folder: its sub-folders that hold a model (as `open_model` takes them) and its GGUF files
      and, with a `config.json` beside them, its files of tensors; the folder itself, where it holds
      a model too, comes last;
    - a name on the Hugging Face hub: its branches and tags, "main" last, where there is a network.

    Raises UnreadableFileError where there is none.
    """
    path = Path(source)
    found = _in_folder(path) if path.is_dir() else _on_hub(str(source))
    if not found:
        raise UnreadableFileError(
            f"no checkpoints in {source}",
            got="no sub-folder and no file that holds a model",
            wanted=f"sub-folders with {CONFIG} or {CARD_FILE} beside their weights",
            todo="save each checkpoint into a folder of its own, side by side",
        )
    return tuple(found)


def follow_checkpoints(source: str | Path, **options: Any) -> Iterator[tuple[str, Report]]:
    """(name, report) of every checkpoint of `source`, one after another, so that one model at a
    time is in memory. `options` are those of `detect_circuits`. Raises what loading or detecting
    raises, with the checkpoint's name.

    >>> from imir_detect.zoo import HOME
    >>> reports = dict(follow_checkpoints("run/checkpoints"))  # doctest: +SKIP
    >>> len(list_checkpoints(HOME)) > 4
    True
    """
    for checkpoint in list_checkpoints(source):
        try:
            report = detect_circuits(checkpoint.load(), **options)
        except ImirError as error:
            raise InvalidArgumentError(
                f"checkpoint {checkpoint.name} could not be analysed",
                got=str(error),
                wanted="checkpoints that load",
                todo="remove it, or finish writing it",
            ) from error
        yield checkpoint.name, report


def course(reports: Mapping[str, Report]) -> Table:
    """One row a checkpoint, in the order given: verdict, strengths and coordinates.

    `label` and the four probabilities; `in_context`, `in_weights`: strength of the best circuit of
    either sort (0 where none); `previous_token`, `duplicate_token`, `induction`: highest predicted
    attention of any head; `shift` (one back), `match`, `copy`, `associate`: largest effect over all
    heads and paths, in nats (None where no coordinate stands for it).
    """
    rows = []
    for name, report in reports.items():
        best = [
            max((c.strength for c in report.circuits if c.kind in kinds), default=0.0)
            for kinds in (IN_CONTEXT, ("in_weights",))
        ]
        shares = [report.probabilities[k] for k in ("icl", "iwl", "mixed", "none")]
        scores = [max(report.heads.column(score), default=None) for score in SCORES]
        effects = [_largest(report, unit) for unit in UNITS]
        rows.append((name, report.label, *shares, *best, *scores, *effects))
    return Table(COLUMNS, rows)


def _largest(report: Report, unit: str) -> float | None:
    wanted = str(SHIFT_1) if unit == "shift" else None
    effects = [
        row["effect"]
        for row in report.coordinates
        if row["unit"] == unit and wanted in (None, row["selection"])
    ]
    return max(effects, default=None)


def _in_folder(folder: Path) -> list[Checkpoint]:
    found = []
    for path in sorted(folder.iterdir(), key=lambda p: _order(p.name)):
        holds = path.is_dir() and any((path / name).is_file() for name in (CONFIG, CARD_FILE))
        tensors = path.suffix in STATE_SUFFIXES and _apart(folder, path)
        if holds or tensors or path.suffix == ".gguf":
            found.append(Checkpoint(path.name if path.is_dir() else path.stem, _opener(path)))
    whole = any(
        (folder / CONFIG).is_file() and (folder / f"model{suffix}").is_file()
        for suffix in STATE_SUFFIXES
    )
    if found and whole:
        found.append(Checkpoint(folder.resolve().name, _opener(folder)))
    return found


def _apart(folder: Path, path: Path) -> bool:
    """Whether a file of tensors is a checkpoint by itself, and not the folder's own weights."""
    return (folder / CONFIG).is_file() and re.search(r"\d", path.stem) is not None


def _on_hub(name: str) -> list[Checkpoint]:
    if not hub_answers():
        raise UnreadableFileError(
            f"no checkpoints of {name}",
            got="neither a folder here nor a network",
            wanted="a folder of checkpoints, or a name on the hub where there is a network",
            todo="check the name, or download the revisions into folders side by side",
        )
    from huggingface_hub import HfApi

    try:
        refs = HfApi().list_repo_refs(name)
    except Exception as error:
        raise UnreadableFileError(
            f"no checkpoints of {name}",
            got=f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}",
            wanted="a model on the Hugging Face hub",
            todo="check the name",
        ) from error
    names = sorted({r.name for r in (*refs.branches, *refs.tags)}, key=_order)
    ordered = [n for n in names if n != "main"] + [n for n in names if n == "main"]
    return [Checkpoint(n, _opener(name, revision=n)) for n in ordered]


def _opener(source: str | Path, revision: str | None = None) -> Callable[[], Any]:
    return lambda: open_model(source, revision=revision)


def _order(name: str) -> list[tuple[int, int, str]]:
    """Numbers in a name count as numbers: step-90 comes before step-100."""
    parts = re.split(r"(\d+)", name)
    return [(1, int(p), "") if p.isdigit() else (0, 0, p) for p in parts]
