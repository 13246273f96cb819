"""Small TransformerLens models from a frozen specification, of the library that is installed.

`transformer_lens` is imported inside functions: it takes seconds, which `import imir_detect` must
not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from imir_detect.errors import InvalidArgumentError

Norm = Literal["LN", "RMS", "LNPre", "RMSPre"]
NORMS: tuple[Norm | None, ...] = (None, "LN", "RMS", "LNPre", "RMSPre")


@dataclass(frozen=True)
class ModelSpec:
    """Architecture of a small model, as `TransformerBridge.boot_native` builds it.

    `d_head` defaults to d_model / n_heads; `d_mlp` 0 means attention only; `norm` None, "LN",
    "RMS", "LNPre" or "RMSPre"; `position` "standard" (learned) or "rotary"; `rotary_dim` of a
    head's dimensions turn (default all); `n_kv_heads` key/value heads serve the heads in groups;
    `cap` soft-caps the scores.

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
        if self.norm not in NORMS:
            raise InvalidArgumentError(
                "no such normalisation", got=repr(self.norm), wanted=str(NORMS), todo="use one"
            )
        if self.position not in ("standard", "rotary"):
            raise InvalidArgumentError(
                "no such positions",
                got=repr(self.position),
                wanted="'standard' or 'rotary'",
                todo="pass a model with other positions itself",
            )
        if self.d_head is None and self.d_model % self.n_heads:
            raise InvalidArgumentError(
                "heads do not divide the width",
                got=f"d_model={self.d_model}, n_heads={self.n_heads}",
                wanted="a multiple, or an explicit d_head",
                todo="set d_head",
            )

    @property
    def head_width(self) -> int:
        return self.d_head or self.d_model // self.n_heads

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
