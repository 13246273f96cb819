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

from imir_detect.errors import InvalidArgumentError, InvalidWeightsError, UnreadableFileError
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import load_parameters

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
    spec = config if isinstance(config, ModelSpec) else _spec(config)
    tensors = {_bare(name): tensor for name, tensor in state.items()}
    tensors = {n: t for n, t in tensors.items() if not n.endswith(BUFFERS)}
    try:
        if any(name.endswith((".W_Q", ".W_E")) for name in tensors):
            tensors = _from_hooked(tensors, spec)
        bias = tensors.get("unembed.bias")
        if bias is not None and bool((bias == bias[0]).all()):
            del tensors["unembed.bias"]  # a constant changes nothing, and few models have a place
        model = spec.boot(seed=0)
        load_parameters(model, {_plain(name, spec.gated): t for name, t in tensors.items()})
    except (ValueError, RuntimeError, KeyError) as error:
        raise InvalidWeightsError(
            "the state dict does not fit its configuration",
            got=f"{error} (keys begin with {', '.join(list(state)[:3])})",
            wanted="the tensors of a native TransformerLens model of this configuration",
            todo="check n_heads, d_head and the other numbers against the model that was saved",
        ) from error
    return model


def _spec(config: Mapping[str, Any]) -> ModelSpec:
    known = {entry.name for entry in fields(ModelSpec)}
    values = {RENAMED.get(name, name): value for name, value in config.items()}
    if values.get("attn_only"):
        values["d_mlp"] = 0
    missing = [name for name in NEEDED if values.get(name) is None]
    if missing:
        raise InvalidArgumentError(
            "the configuration does not tell everything that a state dict leaves open",
            got=f"nothing for {', '.join(missing)}",
            wanted=", ".join(NEEDED),
            todo="heads are never guessed from shapes: add them to the configuration",
        )
    _refuse_unheld(config, values)
    kept = {name: v for name, v in values.items() if name in known and v is not None}
    return ModelSpec(**kept)


def _refuse_unheld(config: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Raise where a setting would be dropped that changes what the tensors compute."""
    odd = [name for name, plain in PLAIN.items() if config.get(name, plain[0]) not in plain]
    width = values.get("d_head") or values["d_model"] // values["n_heads"]
    scale = config.get("attn_scale")
    if scale is not None and scale > 0 and not math.isclose(scale, math.sqrt(width)):
        odd.append("attn_scale")
    # A native model turns adjacent pairs, whatever its own flag says.
    halves = config.get("rotary_adjacent_pairs") is False and config.get("architecture") is None
    if values.get("position") == "rotary" and halves:
        odd.append("rotary_adjacent_pairs")
    if "RMS" not in str(values.get("norm")) and config.get("final_rms"):
        odd.append("final_rms")
    if not math.isclose(config.get("eps") or 1e-5, 1e-5):
        odd.append("eps")
    if values.get("d_mlp") and values.get("act_fn") is None:
        odd.append("act_fn")
    if odd:
        raise InvalidArgumentError(
            "the configuration has settings that a model built here would not have",
            got=", ".join(f"{name}={config.get(name)!r}" for name in odd),
            wanted="a native model's: " + ", ".join(f"{n}={v[0]!r}" for n, v in PLAIN.items()),
            todo="load the model with the library that saved it, and pass the model itself",
        )


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
