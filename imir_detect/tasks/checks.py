"""Checks of knobs, as data: what must hold, what was got, what is allowed, what to change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from imir_detect.arguments import LARGEST_SEED, shown
from imir_detect.errors import InvalidArgumentError, raise_all
from imir_detect.strict import NUMBER
from imir_detect.tasks.blocks import OFFSETS

LARGEST = 10_000_000  # of a knob


@dataclass(frozen=True)
class Rule:
    """One thing that must hold of a task's knobs, with the parts of the message if it does not."""

    holds: bool
    got: str
    wanted: str
    todo: str


def require(name: str, rules: Iterable[Rule]) -> None:
    """Raise `InvalidArgumentError` with every rule that does not hold."""
    raise_all(
        [
            InvalidArgumentError(
                f"these knobs of {name} do not fit",
                got=rule.got,
                wanted=rule.wanted,
                todo=rule.todo,
            )
            for rule in rules
            if not rule.holds
        ]
    )


def right_types(task: Any) -> list[Rule]:
    """Whole numbers where a default is one, numbers where it is one, flags, texts and tuples
    likewise; no number so large that sequences of it could not be held."""
    rules = []
    for field in fields(task):
        value, kind = getattr(task, field.name), str(field.type)
        if kind in ("int", "int | None"):
            fits = isinstance(value, int) and not isinstance(value, bool)
            fits = fits and abs(value) <= (LARGEST_SEED if "seed" in field.name else LARGEST)
            wanted = f"a whole number, at most {LARGEST}"
        elif kind == "float":
            fits, wanted = NUMBER.holds(value) and abs(value) <= LARGEST, "a number, a finite one"
        elif kind == "bool":
            fits, wanted = isinstance(value, bool), "True or False"
        elif kind in ("str", "str | None"):
            fits, wanted = isinstance(value, str), "text"
        elif kind.startswith("tuple["):
            fits, wanted = isinstance(value, tuple | list), "a tuple"
        else:
            continue
        fits = fits or (value is None and kind.endswith("| None"))
        rules.append(Rule(fits, f"{field.name}={shown(value)}", wanted, f"mend {field.name}"))
    return rules


def at_least(task: Any, **lows: int) -> list[Rule]:
    """One rule for each knob: its value is no smaller than the bound. What is no number is left to
    `right_types`."""
    values = {k: getattr(task, k) for k in lows}
    return [
        Rule(
            not NUMBER.holds(values[k]) or values[k] >= low,
            f"{k}={shown(values[k])}",
            f"at least {low}",
            f"raise {k}",
        )
        for k, low in lows.items()
    ]


def shares(task: Any, *names: str) -> list[Rule]:
    """One rule for each knob: a value in [0, 1]."""
    return [
        Rule(
            0 <= getattr(task, k) <= 1, f"{k}={getattr(task, k)}", "a value in [0, 1]", f"mend {k}"
        )
        for k in names
    ]


def one_of(task: Any, name: str, allowed: tuple[Any, ...]) -> Rule:
    """A knob that takes one of a few values."""
    value = getattr(task, name)
    return Rule(value in allowed, f"{name}={value!r}", ", ".join(map(str, allowed)), "use one")


def enough_rare(task: Any, need: int, why: str) -> Rule:
    """The rare tokens are at least as many as one sequence takes."""
    return Rule(
        task.n_rare >= need,
        f"n_rare={task.n_rare} with {task.n_blocks} blocks",
        f"at least {need} rare tokens: {why}",
        "raise n_rare or lower n_blocks",
    )


def placed_query(task: Any) -> Rule:
    """The query's block fits into the context as often as asked."""
    return Rule(
        1 <= task.burstiness <= task.n_blocks - task.query_never_first,
        f"burstiness={task.burstiness} with {task.n_blocks} blocks",
        "1 .. n_blocks (one fewer with query_never_first)",
        "lower burstiness or raise n_blocks",
    )


def placed_blocks(task: Any) -> list[Rule]:
    """The blocks fit below `positions`, which only random offsets have."""
    rules = [one_of(task, "offsets", OFFSETS)]
    if task.offsets == "consecutive":
        rules.append(
            Rule(
                task.positions is None,
                f"positions={task.positions} with consecutive offsets",
                f"no positions: they are 0 .. {task.length - 1}",
                "drop positions, or choose other offsets",
            )
        )
    else:
        blocks = len(task.block_lengths) if task.offsets == "disjoint" else 1
        need = blocks * max(task.block_lengths)
        rules.append(
            Rule(
                task.n_positions >= need,
                f"positions={task.positions} with offsets={task.offsets!r}",
                f"at least {need}",
                "raise positions",
            )
        )
    return rules
