"""Bare state dicts: names stripped of wrappers' prefixes, legacy names converted, heads counted
from a configuration and never guessed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from imir_detect.errors import (
    ImirError,
    InvalidArgumentError,
    InvalidWeightsError,
    UnreadableFileError,
    collecting,
    raise_all,
    some,
)
from imir_detect.strict import NUMBER, check_regular
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import boot_with, odd_form

PREFIXES = ("_orig_mod.", "module.", "original_model.", "_original_component.")
BUFFERS = (".mask", ".IGNORE", ".rotary_sin", ".rotary_cos", ".causal_mask")
NAMES = {  # names of a bridge -> plain names
    "embed.weight": "tok_embed.weight",
    "pos_embed.weight": "pos.weight",
    "ln_final.": "ln_out.",
    "unembed.": "head.",
}
UNGATED = {".mlp.in.": ".mlp.fc_in.", ".mlp.out.": ".mlp.fc_out."}
RENAMED = {  # what TransformerLens configurations call the fields of `ModelSpec`
    "normalization_type": "norm",
    "positional_embedding_type": "position",
    "initializer_range": "init_range",
    "gated_mlp": "gated",
    "n_key_value_heads": "n_kv_heads",
    "attn_scores_soft_cap": "cap",
}
NEEDED = ("d_vocab", "n_ctx", "n_layers", "n_heads", "d_model")
PLAIN: dict[str, tuple[Any, ...]] = {  # settings that `ModelSpec` has at these values only
    "attention_dir": ("causal",),
    "use_attn_scale": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "use_local_attn": (False,),
    "window_size": (None,),
    "use_qk_norm": (False,),
    "parallel_attn_mlp": (False,),
    "use_normalization_before_and_after": (False,),
    "post_embedding_ln": (False,),
    "output_logits_soft_cap": (-1.0,),
    "use_NTK_by_parts_rope": (False,),
    "rotary_base_local": (None,),
    "rope_scaling": (None,),
    "num_experts": (None,),
}


def model_from_state_dict(
    state: Mapping[str, Tensor], config: ModelSpec | Mapping[str, Any]
) -> Any:
    """A runnable model from a state dict and its configuration.

    - state: tensors named as a native `TransformerBridge`, as a `HookedTransformer`
      ("blocks.0.attn.W_Q") or as our saved models name them; prefixes of compiled and parallel
      wrappers are stripped.
    - config: a `ModelSpec`, or a mapping with the fields of one or of a TransformerLens
      configuration. The number of heads comes from here only: a fused matrix does not tell it.

    Returns a native bridge, or a `HookedTransformer` where the library has no such bridge. Raises
    InvalidArgumentError for a configuration that lacks something, InvalidWeightsError for tensors
    that do not fit it.

    >>> from imir_detect import shipped_card, shipped_model
    >>> state = shipped_model("icl").state_dict()
    >>> model_from_state_dict(state, shipped_card("icl")["spec"]).cfg.n_heads
    2
    """
    problems: list[ImirError] = []
    spec = None
    with collecting(problems):
        _check_state(state)
    with collecting(problems):
        spec = config if isinstance(config, ModelSpec) else _spec(config)
    raise_all(problems)
    assert spec is not None
    tensors = {_bare(name): tensor for name, tensor in state.items()}
    tensors = {n: t for n, t in tensors.items() if not n.endswith(BUFFERS)}
    try:
        if any(name.endswith((".W_Q", ".W_E")) for name in tensors):
            tensors = _from_hooked(tensors, spec)
        bias = tensors.get("unembed.bias")
        if bias is not None and bool((bias == bias[0]).all()):
            del tensors["unembed.bias"]  # a constant changes nothing, and few models have a place
        return boot_with(spec, {_plain(name, spec.gated): t for name, t in tensors.items()})
    except (ValueError, RuntimeError, LookupError, TypeError) as error:
        raise InvalidWeightsError(
            "the state dict does not fit its configuration",
            got=f"{error} (keys begin with {', '.join(list(state)[:3])})",
            wanted="the tensors of a native TransformerLens model of this configuration",
            todo="check n_heads, d_head and the other numbers against the model that was saved",
        ) from error


def _check_state(state: Any) -> None:
    """A mapping from names to tensors, each name once when wrappers' prefixes are stripped."""
    got, todo = "", "pass model.state_dict(), or what read_tensors gives"
    if not isinstance(state, Mapping):
        got = f"a {type(state).__name__}"
    elif not state:
        got = "an empty mapping"
    elif odd := [name for name, t in state.items() if not isinstance(t, Tensor)]:
        got = some([f"{name!r}: a {type(state[name]).__name__}" for name in odd])
        inner = [name for name in odd if isinstance(state[name], Mapping)]
        todo = f"a training checkpoint holds it inside: pass [{inner[0]!r}]" if inner else todo
    elif odd := [name for name in state if not isinstance(name, str)]:
        got = f"{odd[0]!r} for a name"
    elif odd := _in_conflict(state):
        got = f"{odd[0]} twice, behind different prefixes, with different values"
    if got:
        raise InvalidWeightsError(
            "this is no state dict", got=got, wanted="names and tensors", todo=todo
        )


def _in_conflict(state: Mapping[str, Tensor]) -> list[str]:
    """Names that stand for two tensors once wrappers' prefixes are stripped."""
    found: dict[str, Tensor] = {}
    return [
        bare
        for name, tensor in state.items()
        if (other := found.setdefault(bare := _bare(name), tensor)) is not tensor
        and (
            other.shape != tensor.shape
            or odd_form(other)
            or odd_form(tensor)
            or not torch.equal(other, tensor)
        )
    ]


def _spec(config: Any) -> ModelSpec:
    if not isinstance(config, Mapping):
        raise InvalidArgumentError(
            "this is no configuration",
            got=f"a {type(config).__name__}",
            wanted="a ModelSpec, or a mapping from names to values",
            todo="pass vars(model.cfg), or the config.json that was saved beside the weights",
        )
    known = {entry.name for entry in fields(ModelSpec)}
    values: dict[str, Any] = {str(RENAMED.get(name, name)): value for name, value in config.items()}
    if values.get("attn_only") is True:
        values["d_mlp"] = 0
    missing = [name for name in NEEDED if values.get(name) is None]
    if missing:
        raise InvalidArgumentError(
            "the configuration does not tell everything that a state dict leaves open",
            got=f"nothing for {', '.join(missing)}",
            wanted=", ".join(NEEDED),
            todo="heads are never guessed from shapes: add them to the configuration",
        )
    spec = ModelSpec(**{name: v for name, v in values.items() if name in known and v is not None})
    _refuse_unheld(config, values, spec)
    return spec


def _refuse_unheld(config: Mapping[str, Any], values: Mapping[str, Any], spec: ModelSpec) -> None:
    """Raise where a setting would be dropped that changes what the tensors compute."""
    odd = [name for name, plain in PLAIN.items() if config.get(name, plain[0]) not in plain]
    scale = config.get("attn_scale")
    default = scale is None or (NUMBER.holds(scale) and scale <= 0)
    if not default and not _near(scale, math.sqrt(spec.head_width)):
        odd.append("attn_scale")
    # A native model turns adjacent pairs, whatever its own flag says.
    halves = config.get("rotary_adjacent_pairs") is False and config.get("architecture") is None
    if spec.position == "rotary" and halves:
        odd.append("rotary_adjacent_pairs")
    if "RMS" not in str(spec.norm) and config.get("final_rms"):
        odd.append("final_rms")
    if not _near(config.get("eps") or 1e-5, 1e-5):
        odd.append("eps")
    if spec.d_mlp and values.get("act_fn") is None:
        odd.append("act_fn")
    if odd:
        raise InvalidArgumentError(
            "the configuration has settings that a model built here would not have",
            got=", ".join(f"{name}={config.get(name)!r}" for name in odd),
            wanted="a native model's: " + ", ".join(f"{n}={v[0]!r}" for n, v in PLAIN.items()),
            todo="load the model with the library that saved it, and pass the model itself",
        )


def _near(value: Any, wanted: float) -> bool:
    return NUMBER.holds(value) and math.isclose(value, wanted)


def _bare(name: str) -> str:
    for prefix in PREFIXES:
        name = name.replace(prefix, "")
    return name


def _plain(name: str, gated: bool) -> str:
    for old, new in (NAMES if gated else {**NAMES, **UNGATED}).items():
        name = name.replace(old, new) if old.startswith(".") or name.startswith(old) else name
    return name.replace("blocks.", "layers.", 1) if name.startswith("blocks.") else name


def _from_hooked(tensors: dict[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Legacy names and shapes to those of a bridge; here the shapes tell the number of heads."""
    for name, tensor in tensors.items():
        if name.endswith("attn.W_Q") and tensor.shape[0] != spec.n_heads:
            raise ValueError(
                f"{name} has {tensor.shape[0]} heads, the configuration {spec.n_heads}"
            )
    plain = {}
    for name, tensor in tensors.items():
        stem, _, last = name.rpartition(".")
        letter, _, port = last.lstrip("_").partition("_")
        kind = "weight" if letter in ("W", "w") else "bias"
        if stem.endswith("attn"):
            plain[f"{stem}.{port.lower()}.{kind}"] = _joined(tensor, port, kind)
        elif stem.endswith("mlp"):
            plain[f"{stem}.{port}.{kind}"] = tensor.T if kind == "weight" else tensor
        elif port == "U":
            plain[f"{stem}.{kind}"] = tensor.T if kind == "weight" else tensor
        else:
            plain[f"{stem}.{kind}"] = tensor
    return plain


def _joined(tensor: Tensor, port: str, kind: str) -> Tensor:
    if port == "O":
        return tensor if kind == "bias" else tensor.flatten(0, 1).T
    return tensor.flatten() if kind == "bias" else tensor.transpose(1, 2).flatten(0, 1)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or of a torch file that holds nothing but tensors.

    Raises UnreadableFileError; nothing in the file is ever run.
    """
    try:
        check_regular(path)
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        state = torch.load(path, map_location="cpu", weights_only=True)
        if isinstance(state, Mapping) and isinstance(state.get("model"), Mapping):
            state = state["model"]
        if not isinstance(state, Mapping) or not all(
            isinstance(value, Tensor) for value in state.values()
        ):
            raise ValueError("it is no mapping from names to tensors")
        return dict(state)
    except Exception as error:  # unpicklers fail in many ways, and none may pass
        raise UnreadableFileError(
            f"unsafe or unreadable checkpoint {path}",
            got=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'empty'}",
            wanted="a safetensors file, or a torch file of tensors alone",
            todo="save the state dict with safetensors",
        ) from error
