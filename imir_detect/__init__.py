"""Read from a transformer's weights which circuits it holds.

from imir_detect import detect_circuits
print(detect_circuits(model))
"""

from imir_detect._version import __version__
from imir_detect.circuits.core import Circuit, Coverage
from imir_detect.coordinates.pathsum import Edge
from imir_detect.errors import ImirError
from imir_detect.pipeline import detect_circuits
from imir_detect.result import Report, Table
from imir_detect.tasks import make_task
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.read import read_weights
from imir_detect.weights.store import load_model, save_model
from imir_detect.zoo import shipped_card, shipped_model

__all__ = [
    "Circuit",
    "Coverage",
    "Edge",
    "ImirError",
    "ModelWeights",
    "Report",
    "Table",
    "__version__",
    "detect_circuits",
    "load_model",
    "make_task",
    "read_weights",
    "save_model",
    "shipped_card",
    "shipped_model",
]
