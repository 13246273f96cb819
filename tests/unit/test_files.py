"""Files are whole or not at all, a folder has one run at a time, and every refusal says what to do.

A dying process is a forked child that kills itself, so that the kernel does what it does to any.
"""

import os
import pickle
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from imir_detect.errors import BusyFolderError, InvalidArgumentError, UnwritableFileError
from imir_detect.files import hold, refuse_other, write_atomically


def child(work: Callable[[], object]) -> int:
    """Do it in a forked process: 0, 1 for an error, or minus the signal that ended it."""
    number = os.fork()
    if number == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel refuses to write more, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_kill_leaves_the_old_file_and_the_next_write_sweeps_its_part(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a [1].json"  # a name that a glob would take for a pattern
    write_atomically(file, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if moment == "fsync" else (Path, "replace")), die)
        assert child(lambda: write_atomically(file, b"new")) == -signal.SIGKILL
    (part,) = tmp_path.glob(".*.tmp")
    assert file.read_bytes() == b"old"
    other = tmp_path / f".a [1].json.{os.getppid()}.tmp"  # of a process that lives
    other.touch()
    write_atomically(file, b"new")
    assert file.read_bytes() == b"new"
    assert not part.exists()
    assert other.exists()


def test_a_full_disk_is_told_in_four_parts_and_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_atomically(file, b"old")
    with files_of_at_most(1000), pytest.raises(UnwritableFileError) as caught:
        write_atomically(file, b"x" * 1001)
    assert str(caught.value) == (
        f"cannot write {file}; got OSError: File too large; wanted space on the disk and leave to "
        "write there; what was there is as it was; next step: mend that, and start the same "
        "command again"
    )
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    again = pickle.loads(pickle.dumps(caught.value))  # as it comes from a worker
    assert (str(again), again.todo) == (str(caught.value), caught.value.todo)


def test_what_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnwritableFileError, match="got NotADirectoryError: Not a directory"):
        write_atomically(tmp_path / "file" / "below" / "it", b"")
    with (
        pytest.raises(UnwritableFileError, match="got FileExistsError: File exists"),
        hold(tmp_path / "file"),
    ):
        pass


def test_a_folder_is_held_by_one_run_and_free_after_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"

    def enter() -> None:
        with hold(folder):
            die()

    assert child(enter) == -signal.SIGKILL  # nothing stale is left of that:
    with hold(folder):
        with pytest.raises(BusyFolderError) as caught, hold(folder):
            pass
        assert child(enter) == 1
        assert list(folder.iterdir()) == []
    assert str(caught.value) == (
        f"another run is at work in {folder}; got a folder that another process holds; wanted one "
        "run a folder at a time; next step: wait until it has ended, or use another folder"
    )
    with hold(folder):
        pass


def test_a_run_can_wait_for_the_other(tmp_path: Path) -> None:
    read, write = os.pipe()

    def other() -> None:
        with hold(tmp_path):
            os.write(write, b".")
            os.read(read_release, 1)
            (tmp_path / "done").touch()

    read_release, release = os.pipe()
    number = os.fork()
    if number == 0:
        try:
            other()
        finally:
            os._exit(0)
    os.read(read, 1)
    os.write(release, b".")
    with hold(tmp_path, wait=True):
        assert (tmp_path / "done").exists()
    os.waitpid(number, 0)


def test_another_configuration_is_refused_by_name(tmp_path: Path) -> None:
    stored = {"task": {"name": "recall", "knobs": {"goals": [1, 2], "noise": None}}, "seed": 3}
    refuse_other(
        tmp_path, stored, {"task": {"name": "recall", "knobs": {"goals": (1, 2)}}, "seed": 3}
    )
    with pytest.raises(InvalidArgumentError) as caught:
        refuse_other(
            tmp_path, stored, {"task": {"name": "ioi", "knobs": {"goals": (1, 2)}}, "seed": 4}
        )
    assert str(caught.value) == (
        f"{tmp_path} belongs to another run; got seed=4, task.name='ioi'; wanted seed=3, "
        "task.name='recall'; next step: use another folder, or remove this one to start over"
    )


def test_a_link_laid_in_the_way_is_never_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / f".file.{os.getpid()}.tmp").symlink_to(victim)
    write_atomically(tmp_path / "file", b"new")
    assert victim.read_bytes() == b"mine"
    assert (tmp_path / "file").read_bytes() == b"new"
    assert not (tmp_path / "file").is_symlink()
