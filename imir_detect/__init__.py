"""Read from a transformer's weights which circuits it holds.

    from imir_detect import detect_circuits
    print(detect_circuits(model))

This file is the API table. Names are loaded when they are first used, so that importing the package
costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from imir_detect._version import __version__

if TYPE_CHECKING:
    from imir_detect.circuits.core import Circuit, Coverage
    from imir_detect.coordinates.pathsum import Edge
    from imir_detect.errors import ImirError
    from imir_detect.pipeline import detect_circuits
    from imir_detect.report.compare import compare
    from imir_detect.report.figures import figure, figure_table
    from imir_detect.result import Report
    from imir_detect.table import Table
    from imir_detect.tasks import make_task
    from imir_detect.weights.forward import predict_attention
    from imir_detect.weights.model import ModelWeights
    from imir_detect.weights.read import read_weights
    from imir_detect.weights.sources import open_model
    from imir_detect.weights.state import model_from_state_dict
    from imir_detect.weights.store import load_model, save_model
    from imir_detect.zoo import shipped_card, shipped_model

_HOME = {
    "Circuit": "circuits.core",
    "Coverage": "circuits.core",
    "Edge": "coordinates.pathsum",
    "ImirError": "errors",
    "ModelWeights": "weights.model",
    "Report": "result",
    "Table": "table",
    "compare": "report.compare",
    "detect_circuits": "pipeline",
    "figure": "report.figures",
    "figure_table": "report.figures",
    "load_model": "weights.store",
    "make_task": "tasks",
    "model_from_state_dict": "weights.state",
    "open_model": "weights.sources",
    "predict_attention": "weights.forward",
    "read_weights": "weights.read",
    "save_model": "weights.store",
    "shipped_card": "zoo",
    "shipped_model": "zoo",
}

__all__ = [
    "Circuit",
    "Coverage",
    "Edge",
    "ImirError",
    "ModelWeights",
    "Report",
    "Table",
    "__version__",
    "compare",
    "detect_circuits",
    "figure",
    "figure_table",
    "load_model",
    "make_task",
    "model_from_state_dict",
    "open_model",
    "predict_attention",
    "read_weights",
    "save_model",
    "shipped_card",
    "shipped_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
