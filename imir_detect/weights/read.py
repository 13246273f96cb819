"""A TransformerLens model to `ModelWeights`: read, check, fold. What is not handled is refused.

Gains are read from the norm modules and not from the configuration, which keeps saying "LN" after
folding; so a model analysed raw, folded or folded twice gives the same weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from imir_detect.errors import InvalidWeightsError, UnsupportedModelError
from imir_detect.linalg import DTYPE, to_analysis
from imir_detect.weights.model import Activation, MLPWeights, ModelWeights

NATIVE = "TransformerLensNative"

ACTIVATIONS: dict[str, Activation] = {
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_new": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "swish": torch.nn.functional.silu,
}


def read_weights(model: Any) -> ModelWeights:
    """The weights of a native TransformerLens 4.x bridge, folded; `ModelWeights` pass through.

    With norm gain g and bias b, the next weight W becomes diag(g) W and gains the bias b W. For
    LayerNorm, what writes to the residual stream and what reads from it is centred over d_model as
    well; the division by the root mean square is left to the reader (`ModelWeights.rms`). Logits
    are centred over the vocabulary, which no softmax sees. The model is not changed.

    Raises UnsupportedModelError naming the feature, and InvalidWeightsError naming the parameter.
    """
    if isinstance(model, ModelWeights):
        return model
    cfg = _supported_config(model)
    kind = (cfg.normalization_type or "none").upper()
    final = "RMS" if getattr(cfg, "final_rms", False) else kind
    if ("RMS" in kind) != ("RMS" in final):
        raise UnsupportedModelError(
            "blocks and final norm are of different kinds",
            got=f"{kind} and {final}",
            wanted="one kind",
            todo="convert the model to one kind of norm first",
        )
    n_layers, n_heads = cfg.n_layers, cfg.n_heads
    centred = kind in ("LN", "LNPRE")

    def stacked(name: str) -> Tensor:
        rows = []
        for layer in range(n_layers):
            try:
                rows.append(to_analysis(getattr(model.blocks[layer].attn, name)))
            except (InvalidWeightsError, NotImplementedError) as error:
                raise InvalidWeightsError(
                    f"block {layer}: {name} cannot be read",
                    got=str(error),
                    wanted="floating-point weights of the usual shape",
                    todo="load the model unquantised",
                ) from error
        return torch.stack(rows)

    _check_raw(model)

    def write(tensor: Tensor) -> Tensor:
        return tensor - tensor.mean(-1, keepdim=True) if centred else tensor

    def reads(tensor: Tensor, gain: Tensor) -> Tensor:
        """A weight (..., d_model, out) behind a norm: gain folded, blind to what is centred."""
        folded = gain[..., :, None] * tensor
        return folded - folded.mean(-2, keepdim=True) if centred else folded

    norms = [_norm(model.blocks[i], "ln1", cfg.d_model) for i in range(n_layers)]
    gains = torch.stack([gain for gain, _ in norms])[:, None]
    shifts = torch.stack([shift for _, shift in norms])
    raw = {letter: stacked(f"W_{letter}") for letter in "QKVO"}
    biases = {
        letter: stacked(f"b_{letter}").reshape(n_layers, n_heads, cfg.d_head)
        + torch.einsum("ld,lhdk->lhk", shifts, raw[letter])
        for letter in "QKV"
    }
    gain, shift = _norm(model, "ln_final", cfg.d_model)
    W_U = to_analysis(model.W_U)
    b_U = W_U.new_zeros(W_U.shape[1]) if model.b_U is None else to_analysis(model.b_U)
    b_U = b_U + shift @ W_U
    W_U = reads(W_U, gain)
    notes = ["value biases folded into output biases", "logits centred over the vocabulary"]
    if kind != "NONE":
        notes.append(f"{kind} gains and biases folded into the weights that follow")
    if centred:
        notes.append("writing weights centred over d_model, as LayerNorm does")
    return ModelWeights(
        W_E=write(to_analysis(model.W_E)),
        W_pos=write(to_analysis(model.W_pos)),
        W_Q=reads(raw["Q"], gains),
        W_K=reads(raw["K"], gains),
        W_V=reads(raw["V"], gains),
        W_O=write(raw["O"]),
        b_Q=biases["Q"],
        b_K=biases["K"],
        b_O=write(stacked("b_O") + torch.einsum("lhk,lhkd->ld", biases["V"], raw["O"])),
        W_U=W_U - W_U.mean(1, keepdim=True),
        b_U=b_U - b_U.mean(),
        scale=torch.tensor([_scale(model, i) for i in range(n_layers)], dtype=DTYPE),
        rms=kind != "NONE",
        eps=float(cfg.eps),
        mlps=tuple(_mlp(model.blocks[i], cfg, reads, write) for i in range(n_layers)),
        notes=tuple(notes),
    )


def _supported_config(model: Any) -> Any:
    cfg = getattr(model, "cfg", None)
    if cfg is None or getattr(cfg, "architecture", None) != NATIVE:
        raise UnsupportedModelError(
            "this kind of model is not read yet",
            got=f"{type(model).__name__} of architecture {getattr(cfg, 'architecture', None)!r}",
            wanted="a native TransformerLens 4.x bridge (TransformerBridge.boot_native)",
            todo="pass such a bridge, or build ModelWeights yourself",
        )
    features = {
        "rotary or other non-learned positions": cfg.positional_embedding_type != "standard",
        "bidirectional attention": cfg.attention_dir != "causal",
        "grouped-query attention": cfg.n_key_value_heads not in (None, cfg.n_heads),
        "soft-capped attention scores": cfg.attn_scores_soft_cap > 0,
        "soft-capped logits": cfg.output_logits_soft_cap > 0,
        "a gated MLP": cfg.gated_mlp and not cfg.attn_only,
        f"the activation {cfg.act_fn!r}": not cfg.attn_only
        and (cfg.act_fn or "gelu").lower() not in ACTIVATIONS,
    }
    found = [name for name, present in features.items() if present]
    if found:
        raise UnsupportedModelError(
            f"the model has {' and '.join(found)}, which this version does not read",
            wanted="learned positions, causal attention, one key/value head a head, plain MLPs",
            todo="nothing is guessed: use a model without it, or a later version",
        )
    return cfg


def _check_raw(model: Any) -> None:
    """Non-finite entries, named as the user knows the parameters, before anything is folded."""
    bad = {}
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point():
            count = int((~torch.isfinite(parameter)).sum())
            if count:
                bad[name.replace("._original_component", "")] = (count, parameter.numel())
    if bad:
        raise InvalidWeightsError(
            "the model holds numbers that are not finite",
            got=", ".join(
                f"{_known_as(name)}: {n} of {size} entries" for name, (n, size) in bad.items()
            ),
            wanted="finite weights",
            todo="check the checkpoint: the run that wrote it may have diverged",
        )


def _known_as(name: str) -> str:
    """`layers.1.attn.o.weight` as "block 1, W_O (layers.1.attn.o.weight)"."""
    parts = name.split(".")
    if len(parts) == 5 and parts[2] == "attn":
        letter = {"weight": "W", "bias": "b"}[parts[4]]
        return f"block {parts[1]}, {letter}_{parts[3].upper()} ({name})"
    return name


def _norm(holder: Any, name: str, d_model: int) -> tuple[Tensor, Tensor]:
    """Gain and bias of a norm module: ones and zeros where it has none."""
    module = getattr(holder, name)
    gain = getattr(module, "weight", None)
    bias = getattr(module, "bias", None)
    one = torch.ones(d_model, dtype=DTYPE)
    return (
        one if gain is None else to_analysis(gain),
        torch.zeros_like(one) if bias is None else to_analysis(bias),
    )


def _scale(model: Any, layer: int) -> float:
    return float(model.blocks[layer].attn.original_component.scale)


def _mlp(block: Any, cfg: Any, reads: Any, write: Any) -> MLPWeights | None:
    if cfg.attn_only:
        return None
    gain, shift = _norm(block, "ln2", cfg.d_model)
    mlp = block.mlp
    W_in = to_analysis(mlp.W_in)
    return MLPWeights(
        W_in=reads(W_in, gain),
        b_in=to_analysis(mlp.b_in) + shift @ W_in,
        W_out=write(to_analysis(mlp.W_out)),
        b_out=write(to_analysis(mlp.b_out)),
        activation=ACTIVATIONS[(cfg.act_fn or "gelu").lower()],
    )
