"""What recall's knobs must fulfil, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imir_detect.tasks.checks import (
    Rule,
    at_least,
    enough_rare,
    placed_blocks,
    placed_query,
    right_types,
    shares,
)

if TYPE_CHECKING:
    from imir_detect.tasks.recall import AssociativeRecall


def type_rules(task: AssociativeRecall) -> list[Rule]:
    """Types and signs, on which the other rules rely."""
    return [*right_types(task), *at_least(task, n_blocks=1, n_common=0, n_rare=0)]


def recall_rules(task: AssociativeRecall) -> list[Rule]:
    """What the knobs must fulfil."""
    rules = [
        placed_query(task),
        Rule(task.zipf >= 0, f"zipf={task.zipf}", "at least 0", "use 0 for uniform tokens"),
        Rule(
            task.n_common % 2 == 0,
            f"n_common={task.n_common}",
            "an even number: common tokens come in pairs",
            "add or drop one common token",
        ),
        *shares(task, "rare_frequency", "variability", "present", "label_noise"),
    ]
    if task.rare_frequency < 1:
        spare = (task.n_pairs - task.slots) * (1 if task.directed else 2)
        rules += [
            Rule(
                task.n_pairs > task.n_blocks,
                f"n_common={task.n_common} with {task.n_blocks} blocks",
                f"at least {2 * task.n_blocks + 2} common tokens: every block its own pair, "
                "and one for a query that is absent",
                "raise n_common, lower n_blocks or set rare_frequency=1",
            ),
            Rule(
                task.variability == 0 or spare >= task.n_blocks,
                f"n_common={task.n_common} with variability={task.variability}",
                f"{task.n_blocks} common tokens whose pair no block uses, got {spare}",
                "raise n_common, lower n_blocks or set variability=0",
            ),
        ]
    if task.rare_frequency > 0:
        need = max(2 * task.n_blocks, 3)
        rules.append(enough_rare(task, need, "two for every block"))
    return [*rules, *placed_blocks(task)]
