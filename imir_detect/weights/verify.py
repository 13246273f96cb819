"""The reading against the model's own run: what does not reproduce the model is refused.

The model is run on a few random tokens. From the residual stream that it has before each layer, the
reading must predict its attention and what its heads write; from the last one, its logits. So a
feature that no reader knows cannot pass unnoticed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.errors import InvalidWeightsError, UnsupportedModelError
from imir_detect.linalg import not_finite
from imir_detect.weights.attention import Attention
from imir_detect.weights.forward import (
    inverse_rms,
    normed,
    patterns,
    post_factor,
    project,
    values,
)
from imir_detect.weights.mlps import ACTIVATIONS
from imir_detect.weights.model import MLPWeights, ModelWeights, Opaque
from imir_detect.weights.offloaded import stored_parameters
from imir_detect.weights.run import run_hooks

TOLERANCE = 1e-3  # of attention, and of outputs and logits relative to their largest entry
SILENT = 1e-5  # nats: logits that differ by less differ by nothing
ROWS, LENGTH = 2, 24


def verified(model: Any, weights: ModelWeights) -> ModelWeights:
    """The weights, completed by what only the run tells: the scale of embeddings and logits, and
    how rotary dimensions pair.

    Raises UnsupportedModelError naming what the reading does not reproduce, and by how much.
    """
    generator = torch.Generator().manual_seed(0)
    length = min(weights.n_ctx, LENGTH)
    tokens = torch.randint(weights.vocab_size, (ROWS, length), generator=generator)
    run = _Run.of(model, weights, tokens)
    _refuse_overflow(model, run)
    weights = _embedding(weights, run)
    weights = _pairing(weights, run)
    mlps = tuple(_mlp(weights, run, layer) for layer in range(weights.n_layers))
    if any(new is not old for new, old in zip(mlps, weights.mlps, strict=True)):
        weights = replace(weights, mlps=mlps)
    for layer in range(weights.n_layers):
        attention, written = run.errors(weights, layer)
        _check("attention", layer, weights, attention)
        _check("head outputs", layer, weights, written)
    return _logits(weights, run, _final_cap(model))


def _refuse_overflow(model: Any, run: _Run) -> None:
    """Finite weights can still be too large for the numbers that the model computes with."""
    named = [(f"the residual stream before layer {i}", x) for i, x in enumerate(run.residual[:-1])]
    named += [("the residual stream at the end", run.residual[-1]), ("the logits", run.logits)]
    bad = next((name for name, x in named if not_finite(x)), None)
    if bad is not None:
        sizes = {n: float(p.abs().max()) for n, p in stored_parameters(model) if p.numel()}
        largest = max(sizes, key=lambda name: sizes[name])
        precision = str(next(iter(model.parameters())).dtype).removeprefix("torch.")
        raise InvalidWeightsError(
            f"the model overflows when it runs: {bad} is not finite",
            got=f"entries up to {sizes[largest]:.2g} in "
            f"{largest.replace('._original_component', '')}, computed in {precision}",
            wanted="a model whose own run gives finite numbers",
            todo="check the checkpoint; if its weights are meant so, run it in a wider number type",
        )


def _final_cap(model: Any) -> float | None:
    """The soft cap of the logits that the model's configuration names."""
    inner = getattr(getattr(model, "original_model", None), "config", None)
    inner = getattr(inner, "text_config", None) or inner
    named = getattr(inner, "final_logit_softcapping", None)
    cap = float(named or getattr(model.cfg, "output_logits_soft_cap", None) or -1.0)
    return cap if cap > 0 else None


class _Run:
    """What the model did: residuals before each layer and at the end, patterns, outputs."""

    def __init__(
        self,
        tokens: Int[Tensor, "n pos"],
        residual: list[Float[Tensor, "n pos d_model"]],
        pattern: list[Tensor | None],
        written: list[Tensor],
        logits: Tensor,
        eps: float,
    ) -> None:
        self.tokens, self.residual, self.pattern = tokens, residual, pattern
        self.written, self.logits, self.eps = written, logits, eps

    @staticmethod
    def of(model: Any, weights: ModelWeights, tokens: Tensor) -> _Run:
        layers = range(weights.n_layers)
        logits, cache = run_hooks(
            model,
            tokens,
            [
                f"blocks.{layer}.{name}"
                for layer in layers
                for name in (
                    "hook_resid_pre",
                    "attn.hook_pattern",
                    "hook_attn_out",
                    "hook_resid_mid",
                    "hook_resid_post",
                )
            ],
        )
        precision = next(iter(model.parameters())).dtype
        before = [cache[f"blocks.{layer}.hook_resid_pre"] for layer in layers]
        written = []
        for layer in layers:
            middle = cache.get(f"blocks.{layer}.hook_resid_mid")
            if middle is None or weights.parallel:
                written.append(cache[f"blocks.{layer}.hook_attn_out"])
            else:
                written.append(middle - before[layer])
        return _Run(
            tokens,
            [*before, cache[f"blocks.{weights.n_layers - 1}.hook_resid_post"]],
            [cache.get(f"blocks.{layer}.attn.hook_pattern") for layer in layers],
            written,
            logits,
            torch.finfo(precision).eps,
        )

    def errors(self, weights: ModelWeights, layer: int) -> tuple[float, float]:
        """Largest differences of attention, and of what the heads write together relative to its
        largest entry, less what the model's own rounding explains; in half precision, mean ones."""
        x = normed(weights, layer, self.residual[layer])
        pattern, _, _ = patterns(weights, layer, x)
        z = pattern @ values(weights, layer, x)
        total = torch.einsum("nhpk,hkd->npd", z, weights.W_O[layer]) + weights.b_O[layer]
        factor = post_factor(weights, layer, total)
        total = total if factor is None else total * factor
        written = self.written[layer]
        if weights.centred:
            written = written - written.mean(-1, keepdim=True)
        # What was read off as a difference of residuals carries their rounding.
        size = float(written.abs().max())
        size += 100 * self.eps * float(self.residual[layer].abs().max())
        rounding = self._rounding(weights, layer, x)
        seen = self.pattern[layer]
        attention = 0.0 if seen is None else self._worst(pattern - seen)
        return attention - rounding, self._worst(total - written) / max(size, 1e-30) - rounding

    def _worst(self, error: Tensor) -> float:
        error = error.abs()
        return float(error.mean() if self.eps > 1e-5 else error.max())

    def _rounding(self, weights: ModelWeights, layer: int, x: Tensor) -> float:
        """How far scores of this size are rounded in the model's own precision, in nats."""
        q, k = project(weights, layer, "Q", x), project(weights, layer, "K", x)
        largest = q.norm(dim=-1).amax() * k.norm(dim=-1).amax() / weights.scale[layer]
        return 4 * self.eps * float(largest)


def _check(what: str, layer: int, weights: ModelWeights, error: float) -> None:
    if not error <= TOLERANCE:
        features = ", ".join(weights.attention[layer].features()) or "plain attention"
        raise UnsupportedModelError(
            f"the {what} of layer {layer} that the weights predict are not the model's",
            got=f"a difference of {error:.2g} (read as {features})",
            wanted=f"at most {TOLERANCE}",
            todo="nothing is guessed: remove hooks that edit the run, or report the model's kind",
        )


def _embedding(weights: ModelWeights, run: _Run) -> ModelWeights:
    """Embeddings as they enter the residual stream: some families multiply them, and some keep rows
    of the position table before position 0."""
    seen = run.residual[0]
    if weights.centred:
        seen = seen - seen.mean(-1, keepdim=True)
    rows = weights.W_E[run.tokens]
    spare = len(weights.W_pos) - weights.n_ctx if weights.learned_positions else 0
    best = float("inf")
    for first in range(spare, -1, -1):
        W_pos = weights.W_pos[first:]
        places = W_pos[: rows.shape[1]] if weights.learned_positions else torch.zeros(1)
        factor = float(((seen - places) * rows).sum() / rows.pow(2).sum().clamp(min=1e-30))
        for scale in (1.0, factor):
            if _close(scale * rows + places, seen, run.eps):
                if scale == 1.0 and len(W_pos) <= weights.n_ctx:
                    return weights
                W_E = weights.W_E if scale == 1.0 else scale * weights.W_E
                return replace(weights, W_E=W_E, W_pos=W_pos[: weights.n_ctx])
            best = min(best, float((scale * rows + places - seen).abs().max()))
    raise UnsupportedModelError(
        "token and position embeddings are not what enters the first layer",
        got=f"a difference of {best:.2g}",
        wanted="their sum",
        todo="nothing is guessed: this kind of embedding is not read",
    )


def _mlp(weights: ModelWeights, run: _Run, layer: int) -> MLPWeights | Opaque | None:
    """The layer's MLP with the activation that the model shows; opaque where none does."""
    part = weights.mlps[layer]
    if not isinstance(part, MLPWeights):
        return part
    before = run.residual[layer] if weights.parallel else run.residual[layer] + run.written[layer]
    wanted = run.residual[layer + 1] - run.residual[layer] - run.written[layer]
    if weights.centred:
        before = before - before.mean(-1, keepdim=True)
        wanted = wanted - wanted.mean(-1, keepdim=True)
    x = before * inverse_rms(weights, before, layer)
    size = float(wanted.abs().max()) + 100 * run.eps * float(before.abs().max())
    for activation in (part.activation, *ACTIVATIONS.values()):
        same = activation is part.activation
        tried = part if same else replace(part, activation=activation)
        if float((tried(x, weights.eps) - wanted).abs().max()) <= (TOLERANCE + 4 * run.eps) * size:
            return tried
    return Opaque("an activation or a form that is not known")


def _close(a: Tensor, b: Tensor, eps: float) -> bool:
    size = max(float(b.abs().max()), 1e-30)
    return float((a - b).abs().max()) <= (TOLERANCE + 4 * eps) * size


def _pairing(weights: ModelWeights, run: _Run) -> ModelWeights:
    """Rotary dimensions pair as neighbours or as halves; no configuration tells both kinds apart,
    so the pairing is the one that the model's attention shows."""

    turned = [i for i, kind in enumerate(weights.attention) if kind.rotary is not None][:2]

    def error(kinds: tuple[Attention, ...]) -> float:
        tried = replace(weights, attention=kinds)
        return max((max(run.errors(tried, layer)) for layer in turned), default=0.0)

    if error(weights.attention) <= TOLERANCE:
        return weights
    other = tuple(
        kind
        if kind.rotary is None
        else replace(kind, rotary=replace(kind.rotary, adjacent=not kind.rotary.adjacent))
        for kind in weights.attention
    )
    return replace(weights, attention=other) if error(other) <= TOLERANCE else weights


def _logits(weights: ModelWeights, run: _Run, cap: float | None) -> ModelWeights:
    """Logits up to a factor that some families multiply them by, and up to a soft cap: a named one
    is undone before they are compared."""
    own = normed(weights, weights.n_layers, run.residual[-1]) @ weights.W_U + weights.b_U
    seen = run.logits - run.logits.mean(-1, keepdim=True)
    if float((own - seen).abs().max()) <= SILENT:
        return weights  # a model that answers nothing: both are round-off
    factor = float((seen * own).sum() / own.pow(2).sum().clamp(min=1e-30))
    for scale in (1.0, factor):
        if _close(scale * own, seen, run.eps):
            if scale == 1.0:
                return weights
            return replace(weights, W_U=scale * weights.W_U, b_U=scale * weights.b_U)
    note = "logits pass a monotone map (a soft cap); effects are in nats before it"
    if cap is not None:
        # Where the cap is all but reached, rounding leaves nothing to compare.
        open_ = run.logits.abs() < 0.99 * cap
        before = cap * (run.logits / cap).clamp(-0.9999999, 0.9999999).atanh()
        difference = (before - own).masked_fill(~open_, float("nan"))
        difference = difference - difference.nanmean(-1, keepdim=True)
        error = float(difference.nan_to_num().abs().max())
        enough = float(open_.double().mean()) > 0.5
        if enough and error <= (TOLERANCE + 100 * run.eps) * float(own.abs().max()):
            return replace(weights, notes=(*weights.notes, note))
    if float((own.argsort(-1) == run.logits.argsort(-1)).double().mean()) > 1 - TOLERANCE:
        return replace(weights, notes=(*weights.notes, note))
    raise UnsupportedModelError(
        "the logits that the weights predict are not the model's",
        got=f"a difference of {float((own - seen).abs().max()):.2g}",
        wanted=f"at most {TOLERANCE} of the largest logit",
        todo="nothing is guessed: report the model's kind",
    )
