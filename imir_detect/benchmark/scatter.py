"""Groups of jobs in this process, over worker processes or a cluster; a worker that dies takes one
job with it, never the suite.

When a process of the pool dies (out of memory, killed), nobody says at which group it was. Groups
are handed out in order, so it is one of the first unfinished ones: each of these is run alone, and
a job whose process dies twice is given up and leaves a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from imir_detect.errors import ImirError
from imir_detect.progress import bar, silent

Job = TypeVar("Job")


def scatter(
    groups: Sequence[list[Job]],
    work: Callable[[list[Job]], None],
    *,
    left: Callable[[list[Job]], list[Job]],
    give_up: Callable[[Job], None],
    workers: int = 1,
    backend: str = "loky",
    progress: bool = True,
) -> None:
    """`work(group)` for every group. `left`: the jobs of a group that are not done, in order;
    `give_up(job)` is called for a job that killed its process.

    With one worker everything runs in this process, and dies with it.
    """
    if workers == 1 and backend == "loky":
        for group in bar(groups, what="cases", show=progress):
            work(group)
        return
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    groups = list(groups)
    try:
        with _backend(backend):
            while groups:
                try:
                    _parallel(work, groups, workers, progress)
                    return
                except TerminatedWorkerError:
                    groups = [jobs for group in groups if (jobs := left(group))]
                for group in groups[: workers if workers > 0 else None]:
                    _alone(work, group, left, give_up)
                groups = [jobs for group in groups if (jobs := left(group))]
    except ImirError:
        raise
    except Exception as error:
        raise ImirError(
            f"a worker of {backend} failed",
            got=f"{type(error).__name__}: {error}",
            wanted="every case run to its end",
            todo="mend that, and start the same command again: what is finished is kept",
        ) from error


def _alone(
    work: Callable[[list[Job]], None],
    group: list[Job],
    left: Callable[[list[Job]], list[Job]],
    give_up: Callable[[Job], None],
) -> None:
    """One group in a process of its own. Its first job has seen its process die before."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    seen = group[0]
    while jobs := left(group):
        try:
            _parallel(work, [jobs], 2, False)  # one worker would be this process
        except TerminatedWorkerError:
            for dead in left(group)[:1]:
                if dead == seen:
                    give_up(dead)
                seen = dead


def _parallel(
    work: Callable[[list[Job]], None], groups: Sequence[list[Job]], workers: int, progress: bool
) -> None:
    import joblib

    joblib.Parallel(n_jobs=workers, batch_size=1, verbose=5 if progress and not silent() else 0)(
        joblib.delayed(work)(group) for group in groups
    )


def _backend(name: str) -> AbstractContextManager[object]:
    import joblib

    if name == "loky":
        return nullcontext()
    if name == "ray":
        from ray.util.joblib import register_ray

        register_ray()
    return joblib.parallel_config(backend=name)
