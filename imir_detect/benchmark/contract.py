"""The contract between a circuit-discovery method and the benchmark.

A method is a callable `(case, *, budget) -> Scores`. It may decline a case: a function
`supports(case) -> Support` says so beforehand, with a reason that the tables show. Methods are
registered by the decorator `method`, or named as `module:function` on the command line.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from imir_detect._typing import Float
from imir_detect.errors import InvalidArgumentError, UnknownNameError

if TYPE_CHECKING:
    from imir_detect.benchmark.cases import Case


@dataclass(frozen=True)
class Budget:
    """What a method may spend.

    - `samples`: prompts it may draw (`case.prompts(budget.samples, seed=budget.seed)`).
    - `steps`: points of an integral. `epochs`: steps of a training. `draws`: of a random method,
      which takes ten times as many.
    - `seed`: of all its randomness.
    """

    samples: int = 32
    steps: int = 5
    epochs: int = 80
    draws: int = 100
    seed: int = 0


@dataclass(frozen=True)
class Scores:
    """What a method says about a case.

    - `values` (item) or (draw, item): one number for each of `case.items`, in their order; higher
      means "in the circuit". Several draws are scored one by one and averaged.
    - `signed` (item) or None: the effect with its sign, where the method has one.
    - `forwards`, `backwards`: passes of the model on its prompts.
    """

    values: Float[torch.Tensor, "... item"]
    signed: Float[torch.Tensor, " item"] | None = None
    forwards: int = 0
    backwards: int = 0
    note: str = ""

    def __post_init__(self) -> None:
        if not bool(torch.isfinite(self.values).all()):
            raise InvalidArgumentError(
                "a method's scores must be finite",
                got=f"{int((~torch.isfinite(self.values)).sum())} that are not",
                wanted="finite numbers, higher for what belongs to the circuit",
                todo="mend the method, or let supports() decline the case",
            )


@dataclass(frozen=True)
class Support:
    """Whether a method takes a case, and if not, why."""

    ok: bool
    reason: str = ""


Run = Callable[..., Scores]


@dataclass(frozen=True)
class Method:
    """A registered method. `sees`: what it is given: "weights", "data", "truth" or "nothing".
    `code`: of an outside method, a hash of its file, so that a changed method is run anew."""

    name: str
    run: Run
    supports: Callable[[Case], Support]
    about: str
    sees: str = "data"
    code: str = ""


METHODS: dict[str, Method] = {}


def edges_or_heads(case: Case) -> Support:
    """Most methods score edges, and heads by way of them."""
    ok = case.granularity in ("edge", "head")
    return Support(ok, "" if ok else f"scores edges and heads, not {case.granularity}s")


def everything(case: Case) -> Support:
    """For methods that score units, too."""
    return Support(True)


def method(
    name: str,
    *,
    about: str,
    sees: str = "data",
    supports: Callable[[Case], Support] = edges_or_heads,
) -> Callable[[Run], Run]:
    """Register a method under a name.

    >>> @method("constant", about="the same score for all", sees="nothing")
    ... def constant(case, *, budget):
    ...     return Scores(torch.zeros(len(case.items)))
    >>> METHODS.pop("constant").about
    'the same score for all'
    """

    def register(run: Run) -> Run:
        if name in METHODS:
            raise InvalidArgumentError(
                "a method of that name is registered", got=repr(name), todo="choose another name"
            )
        METHODS[name] = Method(name, run, supports, about, sees)
        return run

    return register


def find_method(name: str) -> Method:
    """A registered method, or a function named `module:function`.

    Such a function may carry an attribute `supports`; without it, it takes edges and heads.
    """
    import imir_detect.benchmark.methods  # noqa: F401  (registers the shipped ones)

    if name in METHODS:
        return METHODS[name]
    module, _, function = name.partition(":")
    if function:
        try:
            run: Any = getattr(import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise UnknownNameError(
                f"the method {name} cannot be imported",
                got=f"{type(error).__name__}: {error}",
                wanted="module:function, with the module on the Python path",
                todo="run from the folder that holds it, or set PYTHONPATH",
            ) from error
        supports = getattr(run, "supports", edges_or_heads)
        about = (run.__doc__ or "").strip().split("\n")[0]
        return Method(name, run, supports, about, code=_file_hash(run))
    raise UnknownNameError(
        "no such method",
        got=repr(name),
        wanted=", ".join(sorted(METHODS)) + ", or module:function",
        todo="use one",
    )


@lru_cache
def _file_hash(run: Run) -> str:
    """A hash of the file that a function was read from; taken once, when it is first seen."""
    try:
        file = Path(inspect.getfile(run))
        return hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    except (TypeError, OSError):  # no function, or one that was typed in
        return ""
