"""Models that come with the package: trained here, with their measured behaviour on a card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from imir_detect.errors import UnknownNameError
from imir_detect.weights.store import load_model, read_card

if TYPE_CHECKING:
    from transformer_lens import TransformerBridge

HOME = Path(__file__).parent / "models"
SHIPPED = ("icl", "iwl", "mixed", "none")


def shipped_folder(name: str) -> Path:
    """Where a shipped model lies."""
    if name not in SHIPPED:
        raise UnknownNameError(
            "no such shipped model", got=repr(name), wanted=", ".join(SHIPPED), todo="use one"
        )
    return HOME / name


def shipped_model(name: str) -> TransformerBridge:
    """A shipped recall model by its measured label: "icl", "iwl", "mixed" or "none" (untrained).

    Raises UnknownNameError for any other name.
    """
    return load_model(shipped_folder(name))[0]


def shipped_card(name: str) -> dict[str, Any]:
    """What is known of a shipped model: task, recipe, specification, behaviour measured."""
    return read_card(shipped_folder(name))
