"""Small native TransformerLens models from a frozen specification.

`transformer_lens` is imported inside functions: it takes seconds, which `import imir_detect` must
not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from imir_detect.errors import InvalidArgumentError

if TYPE_CHECKING:
    from transformer_lens import TransformerBridge

Norm = Literal["LN", "RMS", "LNPre", "RMSPre"]
NORMS: tuple[Norm | None, ...] = (None, "LN", "RMS", "LNPre", "RMSPre")


@dataclass(frozen=True)
class ModelSpec:
    """Architecture of a small model, as `TransformerBridge.boot_native` builds it.

    `d_head` defaults to d_model / n_heads; `d_mlp` 0 means attention only; `norm` None, "LN",
    "RMS", "LNPre" or "RMSPre"; `position` "standard" (learned) or "rotary".

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

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise InvalidArgumentError(
                "no such normalisation", got=repr(self.norm), wanted=str(NORMS), todo="use one"
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

    def boot(self, seed: int) -> TransformerBridge:
        """A freshly initialised bridge; the global random state is left alone."""
        from transformer_lens import TransformerBridge, TransformerBridgeConfig

        config = TransformerBridgeConfig(
            d_model=self.d_model,
            d_head=self.head_width,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            n_ctx=self.n_ctx,
            d_vocab=self.d_vocab,
            attn_only=self.d_mlp == 0,
            d_mlp=self.d_mlp or None,
            act_fn="gelu_new",
            normalization_type=self.norm,
            positional_embedding_type=self.position,
            initializer_range=-1.0 if self.init_range is None else self.init_range,
            seed=seed,
            architecture="TransformerLensNative",
        )
        return TransformerBridge.boot_native(config)
