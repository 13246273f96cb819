"""Models that come with the package: trained here, with their measured behaviour on a card.

The four of `SHIPPED` are named by their label; `core_names` lists the core zoo, about forty more of
many tasks and architectures. `grid` says which models the whole zoo has, `build` trains them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from imir_detect.errors import UnknownNameError
from imir_detect.weights.store import load_model, read_card

if TYPE_CHECKING:
    from transformer_lens import TransformerBridge

HOME = Path(__file__).parent / "models"
SHIPPED = ("icl", "iwl", "mixed", "none")


def core_names() -> tuple[str, ...]:
    """Every model that comes with the package, the four of `SHIPPED` first."""
    others = sorted(f.parent.name for f in HOME.glob("*/card.json"))
    return (*SHIPPED, *(name for name in others if name not in SHIPPED))


def shipped_folder(name: str) -> Path:
    """Where a model that comes with the package lies."""
    if name not in core_names():
        raise UnknownNameError(
            "no such shipped model",
            got=repr(name),
            wanted=f"{', '.join(SHIPPED)}, or a name of `imir-detect zoo list`",
            todo="use one",
        )
    return HOME / name


def shipped_model(name: str) -> TransformerBridge:
    """A shipped recall model by its measured label: "icl", "iwl", "mixed" or "none" (untrained); or
    any other of the core zoo by its name.

    Raises UnknownNameError for any other name.

    >>> shipped_model("mixed").cfg.d_model
    64
    """
    return load_model(shipped_folder(name))[0]


def shipped_card(name: str) -> dict[str, Any]:
    """What is known of a shipped model: task, recipe, specification, behaviour measured.

    `name` as in `shipped_model`. Accuracies in [0, 1], on fresh data. Raises UnknownNameError for
    any other name.

    >>> shipped_card("iwl")["measured"]["iwl_accuracy"] > 0.9
    True
    """
    return read_card(shipped_folder(name))
