"""Checkpoints of a run in training: one safetensors file, replaced atomically.

The header holds what the run is (its identity) and where it stands; the tensors are its parameters,
optimiser state and generators' states. A run of another identity is refused by what differs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from imir_detect.errors import ImirError, UnreadableFileError
from imir_detect.files import refuse_other, write_atomically
from imir_detect.strict import json_text, parse_json, read_file


@dataclass(frozen=True)
class Checkpoint:
    """What a run is, where it stands (both JSON), and its tensors by name."""

    identity: dict[str, Any]
    state: dict[str, Any]
    tensors: dict[str, Tensor]

    def write(self, file: Path) -> None:
        """Replace the file."""
        run = json_text({"identity": self.identity, **self.state}, indent=None)
        tensors = {name: t.detach().contiguous() for name, t in self.tensors.items()}
        write_atomically(file, save(tensors, {"run": run}))

    @classmethod
    def read(cls, file: Path, identity: dict[str, Any] | None = None) -> Checkpoint:
        """The file's checkpoint; refused where it is not of the run of this identity."""
        with readable(file):
            data = read_file(file)
            (size,) = struct.unpack("<Q", data[:8])
            state = parse_json(parse_json(data[8 : 8 + size])["__metadata__"]["run"])
            found = cls(state.pop("identity"), state, load(data))
            if identity is not None:
                refuse_other(file, found.identity, identity)
        return found


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """What goes wrong while a checkpoint is read or taken up is told as one error."""
    try:
        yield
    except ImirError:
        raise
    except Exception as error:
        raise UnreadableFileError(
            f"unreadable checkpoint {file}",
            got=f"{type(error).__name__}: {error}",
            wanted="a checkpoint of this training run",
            todo="remove the file to start over",
        ) from error
