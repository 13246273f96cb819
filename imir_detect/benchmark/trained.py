"""Small trained models of the suites: one head a layer, so that every subset of edges can be tried.

Each is trained from its recipe on first use (seconds) and kept in a folder; a card beside it holds
recipe and behaviour. The shipped models, with two heads a layer, have bracketed truth.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from imir_detect.benchmark.cases import Case, Granularity, Question, searched_case
from imir_detect.benchmark.graph import PatchedModel
from imir_detect.benchmark.truth import Bracket, bracketed_circuits, minimal_circuits
from imir_detect.coordinates.pathsum import Edge
from imir_detect.errors import UnreadableFileError
from imir_detect.files import write_atomically
from imir_detect.models.planted_truth import Ablation, Truth
from imir_detect.strict import ANY, COUNT, Is, check_shape, json_text, read_json
from imir_detect.tasks import make_task
from imir_detect.training.loop import Recipe
from imir_detect.training.recipes import TaskRecipe
from imir_detect.training.saved import train_and_save
from imir_detect.weights.store import load_model
from imir_detect.zoo import shipped_card, shipped_model


def _recall(axis: str, seed: int, *, norm: str | None, width: int = 64, **knobs: Any) -> TaskRecipe:
    icl = {"n_common": 0, "n_rare": 40, "rare_frequency": 1.0}
    iwl = {"n_common": 40, "n_rare": 0, "rare_frequency": 0.0, "present": 0.5}
    return TaskRecipe(
        "recall",
        {"n_blocks": 6, **(icl if axis == "icl" else iwl), **knobs},
        {"n_heads": 1, "d_model": width, "norm": norm},
        Recipe(
            seed=seed,
            steps=4000 if norm is None else 6000,
            rate=3e-3 if norm is None else 1e-3,
            stop_at={f"{axis}_accuracy": 0.98},
        ),
    )


TRAINED: dict[str, TaskRecipe] = {
    "icl-plain": _recall("icl", 41, norm=None),
    "icl-layernorm": _recall("icl", 42, norm="LN"),
    "icl-rmsnorm": _recall("icl", 43, norm="RMS"),
    "icl-zipf": _recall("icl", 44, norm=None, n_blocks=8, zipf=1.0),
    "icl-narrow": _recall("icl", 45, norm="RMS", width=32, n_blocks=4),
    "iwl-plain": _recall("iwl", 46, norm=None),
    "iwl-layernorm": _recall("iwl", 47, norm="LN"),
    "iwl-rmsnorm": _recall("iwl", 48, norm="RMS"),
    "iwl-directed": _recall("iwl", 49, norm=None, directed=True),
    "iwl-wide": _recall("iwl", 50, norm=None, width=96, n_blocks=4),
}
ALONE = Is(
    lambda v: v is None or (isinstance(v, list) and all(map(COUNT.holds, v))),
    "a list of whole numbers or null",
)
TRUTH_FORMAT = 2
SHIPPED_ASKED = {"shipped-icl": "icl", "shipped-iwl": "iwl", "shipped-mixed": "icl"}


def trained_model(name: str, folder: Path) -> Any:
    """The model of that name: loaded from `folder`/name, or trained there."""
    # Another worker may be training it for a case of its own.
    train_and_save(*TRAINED[name].make(), folder / name, progress=False, wait=True, name=name)
    return load_model(folder / name)[0]


def trained_case(
    name: str, ablation: Ablation, granularity: Granularity = "edge", *, folder: Path
) -> Case:
    """A trained model asked for what it was trained to do."""
    if name in SHIPPED_ASKED:
        axis = SHIPPED_ASKED[name]
        knobs = shipped_card(name.removeprefix("shipped-"))["task"]["knobs"]
        model = shipped_model(name.removeprefix("shipped-"))
    else:
        axis = name.split("-")[0]
        knobs = TRAINED[name].knobs
        model = trained_model(name, folder)
    task = _asked(axis, knobs)
    question = Question("behind") if axis == "icl" else Question("partner", relation=task.relation)
    exhaustive = name not in SHIPPED_ASKED
    search = minimal_circuits if exhaustive else bracketed_circuits
    return searched_case(
        name,
        model,
        task,
        question,
        ablation,
        granularity,
        search=lambda patched: _kept(folder / name / f"truth-{ablation}.json", search, patched),
        source="exhaustive" if exhaustive else "bracketed",
        facts={"source": "trained", "kind": axis},
    )


def _kept(file: Path, search: Callable[[PatchedModel], Truth], patched: PatchedModel) -> Truth:
    """The truth as searched before with these weights, or searched now."""
    number = {edge: i for i, edge in enumerate(patched.edges)}
    key = [TRUTH_FORMAT, patched.weights.hash()]
    if file.exists():
        stored = _stored(file)
        if stored["key"] == key:
            found = tuple(frozenset(_named(file, patched, c)) for c in stored["edges"])
            if stored["alone"] is None:
                return Truth(found)
            return Bracket(found, alone=frozenset(_named(file, patched, stored["alone"])))
    truth = search(patched)
    circuits = [sorted(number[edge] for edge in circuit) for circuit in truth.circuits]
    alone = sorted(number[e] for e in truth.alone) if isinstance(truth, Bracket) else None
    stored = {"key": key, "edges": circuits, "alone": alone}
    write_atomically(file, json_text(stored, indent=None).encode())
    return truth


def _stored(file: Path) -> dict[str, Any]:
    try:
        stored = read_json(file)
        check_shape(stored, {"key": [ANY], "edges": [[COUNT]], "alone": ALONE})
        return stored
    except (OSError, ValueError) as error:
        raise _unreadable(file, f"{type(error).__name__}: {error}") from error


def _named(file: Path, patched: PatchedModel, numbers: list[int]) -> list[Edge]:
    if max(numbers, default=0) >= len(patched.edges):
        raise _unreadable(file, f"edge {max(numbers)} of {len(patched.edges)}")
    return [patched.edges[i] for i in numbers]


def _unreadable(file: Path, got: str) -> UnreadableFileError:
    return UnreadableFileError(
        f"{file} is no truth that was searched here",
        got=got,
        wanted="circuits as lists of edges",
        todo="remove the file; it is searched again",
    )


def _asked(axis: str, knobs: dict[str, Any]) -> Any:
    """The task's question on one axis alone: fresh pairs shown, or R's answer not shown."""
    share = 0.0 if axis == "iwl" else 1.0
    law = {"rare_frequency": share, "present": share, "variability": 0.0, "label_noise": 0.0}
    return make_task("recall", **{**knobs, **law})
