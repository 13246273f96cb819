"""Shared settings: quiet third-party imports, and small models made once."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
logging.disable(logging.WARNING)


@pytest.fixture(scope="session")
def shipped() -> dict[str, Any]:
    """The four shipped models and their reports, made once."""
    from imir_detect import detect_circuits, shipped_model
    from imir_detect.zoo import SHIPPED

    models = {name: shipped_model(name) for name in SHIPPED}
    return {name: (model, detect_circuits(model)) for name, model in models.items()}
