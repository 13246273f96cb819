"""Small TransformerLens models from a frozen specification, of the library that is installed.

`transformer_lens` is imported inside functions: it takes seconds, which `import imir_detect` must
not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from imir_detect.errors import ImirError, InvalidArgumentError, raise_all
from imir_detect.strict import COUNT, FLAG, NUMBER, POSITIVE, TEXT, Is, or_null

Norm = Literal["LN", "RMS", "LNPre", "RMSPre"]
NORMS: tuple[Norm | None, ...] = (None, "LN", "RMS", "LNPre", "RMSPre")

MOST_MASKED = 2**31  # bytes of causal masks, which a native model keeps whole, one a layer
KINDS: dict[str, Is] = {
    **dict.fromkeys(("d_vocab", "n_ctx", "n_layers", "n_heads", "d_model"), POSITIVE),
    **dict.fromkeys(("d_head", "n_kv_heads", "rotary_dim"), or_null(POSITIVE)),
    "d_mlp": COUNT,
    "init_range": or_null(NUMBER),
    "act_fn": TEXT,
    "gated": FLAG,
    "rotary_base": Is(lambda v: NUMBER.holds(v) and v > 0, "a number above 0"),
    "cap": NUMBER,
}


@dataclass(frozen=True)
class ModelSpec:
    """Architecture of a small model, as `TransformerBridge.boot_native` builds it.

    `d_head` defaults to d_model / n_heads; `d_mlp` 0 means attention only; `norm` None, "LN",
    "RMS", "LNPre" or "RMSPre"; `position` "standard" (learned) or "rotary"; `rotary_dim` of a
    head's dimensions turn (default all); `n_kv_heads` key/value heads serve the heads in groups;
    `cap` soft-caps the scores. Raises every field that does not fit, at once.

    >>> ModelSpec(d_vocab=10, n_ctx=5, d_model=8, n_heads=2).head_width
    4
    """

    d_vocab: int
    n_ctx: int
    n_layers: int = 2
    n_heads: int = 1
    d_model: int = 64
    d_head: int | None = None
    d_mlp: int = 0
    norm: Norm | None = None
    position: Literal["standard", "rotary"] = "standard"
    init_range: float | None = None
    act_fn: str = "gelu_new"
    gated: bool = False
    n_kv_heads: int | None = None
    rotary_dim: int | None = None
    rotary_base: float = 10000.0
    cap: float = -1.0

    def __post_init__(self) -> None:
        raise_all(list(_problems(self)))

    @property
    def head_width(self) -> int:
        return self.d_head or self.d_model // self.n_heads

    @property
    def least_size(self) -> int:
        """Numbers in the model's matrices, without biases and norms."""
        heads = self.n_heads + (self.n_kv_heads or self.n_heads)
        layer = 2 * heads * self.head_width * self.d_model
        layer += (3 if self.gated else 2) * self.d_mlp * self.d_model
        places = self.n_ctx if self.position == "standard" else 0
        return self.n_layers * layer + (2 * self.d_vocab + places) * self.d_model

    def boot(self, seed: int) -> Any:
        """A freshly initialised native bridge, or a `HookedTransformer` where the library has no
        such bridge (2.x); the global random state is left alone."""
        import random

        import numpy
        import torch
        import transformer_lens

        bridge: Any = getattr(transformer_lens, "TransformerBridge", None)
        settings = self._settings(seed)
        states = random.getstate(), numpy.random.get_state()  # noqa: NPY002  (2.x seeds them, too)
        try:
            with torch.random.fork_rng(devices=[]):
                if hasattr(bridge, "boot_native"):
                    config = transformer_lens.TransformerBridgeConfig(
                        **settings,
                        rotary_base=self.rotary_base,
                        architecture="TransformerLensNative",
                    )
                    return bridge.boot_native(config)
                config = transformer_lens.HookedTransformerConfig(
                    **settings,
                    rotary_base=int(self.rotary_base),
                    rotary_adjacent_pairs=True,
                    default_prepend_bos=False,
                )
                return transformer_lens.HookedTransformer(config)
        finally:
            random.setstate(states[0])
            numpy.random.set_state(states[1])  # noqa: NPY002

    def _settings(self, seed: int) -> dict[str, Any]:
        """What both generations of the library call by the same names."""
        return {
            "d_model": self.d_model,
            "d_head": self.head_width,
            "n_layers": self.n_layers,
            "n_heads": self.n_heads,
            "n_ctx": self.n_ctx,
            "d_vocab": self.d_vocab,
            "attn_only": self.d_mlp == 0,
            "d_mlp": self.d_mlp or None,
            "act_fn": self.act_fn,
            "gated_mlp": self.gated,
            "normalization_type": self.norm,
            "positional_embedding_type": self.position,
            "rotary_dim": self.rotary_dim,
            "n_key_value_heads": self.n_kv_heads,
            "attn_scores_soft_cap": self.cap,
            "initializer_range": -1.0 if self.init_range is None else self.init_range,
            "seed": seed,
        }


def _problems(spec: ModelSpec) -> Iterator[ImirError]:
    """Every field that no model can have, then how the fields fit each other."""
    wrong = [name for name, kind in KINDS.items() if not kind.holds(getattr(spec, name))]
    for name in wrong:
        yield InvalidArgumentError(
            f"no model has this {name}",
            got=f"{name}={getattr(spec, name)!r}",
            wanted=KINDS[name].wanted,
            todo="mend the specification",
        )
    if spec.norm not in NORMS:
        yield InvalidArgumentError(
            "no such normalisation", got=repr(spec.norm), wanted=str(NORMS), todo="use one"
        )
    if spec.position not in ("standard", "rotary"):
        yield InvalidArgumentError(
            "no such positions",
            got=repr(spec.position),
            wanted="'standard' or 'rotary'",
            todo="pass a model with other positions itself",
        )
    if wrong:
        return
    if spec.d_head is None and spec.d_model % spec.n_heads:
        yield InvalidArgumentError(
            "heads do not divide the width",
            got=f"d_model={spec.d_model}, n_heads={spec.n_heads}",
            wanted="a multiple, or an explicit d_head",
            todo="set d_head",
        )
        return
    if spec.n_heads % (spec.n_kv_heads or 1):
        yield InvalidArgumentError(
            "key/value heads do not divide the heads",
            got=f"n_heads={spec.n_heads}, n_kv_heads={spec.n_kv_heads}",
            wanted="a divisor of n_heads",
            todo="mend n_kv_heads",
        )
    turned = spec.rotary_dim or spec.head_width
    if spec.position == "rotary" and (turned % 2 or turned > spec.head_width):
        yield InvalidArgumentError(
            "rotary dimensions come in pairs within a head",
            got=f"{turned} of a head's {spec.head_width}",
            wanted=f"an even number, at most {spec.head_width}",
            todo="set rotary_dim, or another d_head",
        )
    if spec.n_layers * spec.n_ctx**2 > MOST_MASKED:
        yield InvalidArgumentError(
            "a native model of so many positions does not fit into memory",
            got=f"n_ctx={spec.n_ctx} in {spec.n_layers} layers",
            wanted=f"at most {MOST_MASKED} entries of causal masks, n_layers x n_ctx x n_ctx",
            todo="lower n_ctx, or pass a model that was loaded with its own library",
        )
