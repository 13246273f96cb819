"""What must hold of the tensors of `ModelWeights`; whatever does not is told at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imir_detect.errors import ImirError, InvalidWeightsError
from imir_detect.linalg import DTYPE, not_finite

if TYPE_CHECKING:
    from imir_detect.weights.model import ModelWeights


def misfits(w: ModelWeights) -> list[ImirError]:
    """Everything about the tensors that does not fit, found before anything is raised."""
    found: list[ImirError] = []

    def tell(what: str, *, got: str, wanted: str, todo: str) -> None:
        found.append(InvalidWeightsError(what, got=got, wanted=wanted, todo=todo))

    for name, shape in _wanted_shapes(w).items():
        if tuple(getattr(w, name).shape) != shape:
            tell(
                f"{name} does not fit the other weights",
                got=str(tuple(getattr(w, name).shape)),
                wanted=str(shape),
                todo="check how the weights were stacked",
            )
    for name, entries, todo in (
        ("mlps", w.mlps, "use None where a layer has none"),
        ("attention", w.attention, "use Attention() for plain attention"),
    ):
        if len(entries) != w.n_layers:
            tell(
                f"{name} needs one entry a layer",
                got=str(len(entries)),
                wanted=str(w.n_layers),
                todo=todo,
            )
    if w.n_ctx < 1:
        tell(
            "nothing tells how many positions the model has",
            got="no W_pos and context 0",
            wanted="a table of positions, or context",
            todo="set context to the model's n_ctx",
        )
    for name, tensor in w.tensors():
        if tensor.dtype != DTYPE:
            tell(
                f"{name} is not float64",
                got=str(tensor.dtype),
                wanted="float64 on the CPU",
                todo="convert with imir_detect.linalg.to_analysis",
            )
        elif bad := not_finite(tensor):
            tell(
                f"{name} holds numbers that are not finite",
                got=f"{bad} of {tensor.numel()} entries NaN or infinite",
                wanted="finite weights",
                todo="check the checkpoint: the run that wrote it may have diverged",
            )
    return found


def check_axes(w: ModelWeights) -> None:
    """The axes from which all other shapes follow."""
    axes = {"W_Q": 4, "W_E": 2, "W_pos": 2, "W_U": 2}
    shapes = {name: tuple(getattr(getattr(w, name), "shape", ())) for name in axes}
    odd = [name for name, count in axes.items() if len(shapes[name]) != count]
    odd += [name for name in ("W_Q", "W_E", "W_U") if 0 in shapes[name]]
    if odd:
        raise InvalidWeightsError(
            "weights have the wrong number of axes, or nothing along one",
            got=", ".join(f"{name} {shapes[name]}" for name in dict.fromkeys(odd)),
            wanted="W_Q (layer, head, d_model, d_head), W_E (vocab, d_model), W_pos (pos, d_model),"
            " W_U (d_model, vocab), all but pos at least 1",
            todo="stack the layers and split the heads",
        )


def _wanted_shapes(w: ModelWeights) -> dict[str, tuple[int, ...]]:
    layers, heads, d_model, d_head = w.W_Q.shape
    wanted: dict[str, tuple[int, ...]] = {
        "W_E": (w.W_E.shape[0], d_model),
        "W_pos": (len(w.W_pos), d_model),
        "W_K": (layers, heads, d_model, d_head),
        "W_V": (layers, heads, d_model, d_head),
        "W_O": (layers, heads, d_head, d_model),
        "b_Q": (layers, heads, d_head),
        "b_K": (layers, heads, d_head),
        "b_O": (layers, d_model),
        "W_U": (d_model, w.W_U.shape[-1]),
        "b_U": (w.W_U.shape[-1],),
        "scale": (layers,),
    }
    if w.b_V is not None:
        wanted["b_V"] = (layers, heads, d_head)
    if w.post_gain is not None:
        wanted["post_gain"] = (layers, d_model)
    return wanted
