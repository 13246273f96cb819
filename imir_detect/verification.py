"""Ablation checked by running: how much worse the model answers without some heads, with intervals.

Heads' outputs (`hook_z`, before the output map) are replaced in two ways: by their mean over all
contexts of the same run, place by place; and by what they were in another context at the same place
(resampled), which keeps their spread. The same is done with as many random other heads, several
times. Every number is a mean over contexts; an interval is Student's at 95 %, over contexts, and
over the draws as well where heads were drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import HeadIndex, Int
from imir_detect.linalg import DTYPE
from imir_detect.weights.ablation import Hook, replacing_hooks, split_heads, z_name
from imir_detect.weights.run import quietly
from imir_detect.weights.unwrap import unwrap

TOKENS = 1024  # of one forward pass; 8 contexts at the least
DRAWS = 5  # sets of random heads
LEVEL = 0.95


@dataclass(frozen=True)
class Asked:
    """Contexts and what is asked of them: at (`row`, `place`) the token `wanted` would be right."""

    tokens: Int[Tensor, "n pos"]
    row: Int[Tensor, " asked"]
    place: Int[Tensor, " asked"]
    wanted: Int[Tensor, " asked"]
    what: str


def repeated_questions(
    vocabulary: Int[Tensor, " vocab"], length: int, contexts: int, *, generator: torch.Generator
) -> Asked:
    """Random tokens repeated as often as fits, twice at the least: from the second token of the
    second period on, the next token is asked (the first one repeats what follows nothing)."""
    period = max(2, min(length // 2, len(vocabulary)))
    draws = [torch.randperm(len(vocabulary), generator=generator)[:period] for _ in range(contexts)]
    periods = max(2, length // period)
    tokens = vocabulary[torch.stack(draws)].repeat(1, periods)
    place = torch.arange(period + 1, tokens.shape[1] - 1)
    row = torch.arange(contexts).repeat_interleave(len(place))
    place = place.repeat(contexts)
    what = f"{contexts} contexts of {periods} periods of {period} random tokens"
    return Asked(tokens, row, place, tokens[row, place + 1], what)


def check_heads(
    model: Any,
    asked: Asked,
    heads: Sequence[HeadIndex],
    others: Sequence[HeadIndex],
    *,
    generator: torch.Generator,
    draws: int = DRAWS,
) -> dict[str, Any]:
    """Share of right answers with the model as it is (`intact`), with `heads` ablated by the mean
    (`ablated`) and resampled (`resampled`), with as many of `others` (`random`,
    `random_resampled`: means of `draws` draws; None where there are not as many), and by how much
    each lowers it (`drop`). `intervals` has the 95 % interval of each; `nats` the mean log
    probability of the right token; `forward_passes` counts calls of the model, of `batch`
    contexts each or fewer.

    >>> from imir_detect import shipped_model
    >>> g = torch.Generator().manual_seed(0)
    >>> asked = repeated_questions(torch.arange(64), 16, 32, generator=g)
    >>> check_heads(shipped_model("icl"), asked, [(1, 0)], [(0, 0)], generator=g)["forward_passes"]
    13
    """
    run = _Runner(unwrap(model), asked)
    intact = run.answers([])
    shift = 1 + int(torch.randint(len(asked.tokens) - 1, (1,), generator=generator))
    result: dict[str, Any] = {"asked": asked.what, "intervals": {}, "nats": {}}
    _note(result, "intact", [intact], None)
    _note(result, "ablated", [run.answers(run.hooks(heads))], intact)
    _note(result, "resampled", [run.answers(run.hooks(heads, shift=shift))], intact)
    wanted = len(heads)
    for key in ("random", "random_resampled"):
        result[key] = None
    if 0 < wanted <= len(others):
        sets = [
            [others[int(i)] for i in torch.randperm(len(others), generator=generator)[:wanted]]
            for _ in range(draws)
        ]
        _note(result, "random", [run.answers(run.hooks(s)) for s in sets], intact)
        resampled = [run.answers(run.hooks(s, shift=shift)) for s in sets]
        _note(result, "random_resampled", resampled, intact)
    return result | {"draws": draws, "forward_passes": run.passes, "batch": run.batch}


def interval(mean: float, error: float, count: int) -> list[float]:
    """[low, high] of a mean with this standard error from `count` values, at 95 %."""
    from scipy.special import stdtrit  # comes with scikit-learn

    half = float(stdtrit(max(1, count - 1), (1 + LEVEL) / 2)) * error
    return [mean - half, mean + half]


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """Mean of (draw, context) and its standard error: over contexts, of the means over draws, and,
    of several draws, over these."""
    rows = values.mean(0)
    variance = float(rows.var()) / len(rows) if len(rows) > 1 else 0.0
    if len(values) > 1:
        variance += float(values.mean(1).var()) / len(values)
    return float(rows.mean()), math.sqrt(variance)


def _note(
    result: dict[str, Any], name: str, found: list[tuple[Tensor, Tensor]], intact: Any
) -> None:
    """Write down one condition: share right, its drop, intervals and nats."""
    right = torch.stack([f[0] for f in found])
    count = len(found) if len(found) > 1 else right.shape[1]
    mean, error = mean_and_error(right)
    result[name] = mean
    low, high = interval(mean, error, count)
    result["intervals"][name] = [max(0.0, low), min(1.0, high)]
    result["nats"][name] = float(torch.stack([f[1] for f in found]).mean())
    if intact is not None:
        mean, error = mean_and_error(intact[0] - right)
        result.setdefault("drop", {})[name] = mean
        result["intervals"][f"drop of {name}"] = interval(mean, error, count)


class _Runner:
    """Runs the model on the contexts, remembering what heads gave when nothing was ablated."""

    def __init__(self, model: Any, asked: Asked) -> None:
        self.model, self.asked = model, asked
        self.layers, self.n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
        self.batch = max(8, TOKENS // asked.tokens.shape[1])
        self.passes = 0
        self.given: dict[int, list[Tensor]] = {layer: [] for layer in range(self.layers)}

    def hooks(self, heads: Sequence[HeadIndex], *, shift: int = 0) -> _Replacement:
        """Outputs to put in the place of these heads': the mean, or, with `shift`, those of the
        context so many further on."""
        needed = {layer for layer, _ in heads}
        all_rows = {layer: torch.cat(self.given[layer]) for layer in needed}
        if shift:
            rolled = {layer: rows.roll(shift, 0) for layer, rows in all_rows.items()}
            return _Replacement(tuple(heads), self.n_heads, rolled)
        means = {layer: rows.mean(0, keepdim=True) for layer, rows in all_rows.items()}
        return _Replacement(tuple(heads), self.n_heads, means)

    def answers(self, replaced: Any) -> tuple[Tensor, Tensor]:
        """Share of right answers, and mean log probability of the right token (nats), a context."""
        asked, first = self.asked, not self.given[0]
        right = torch.zeros(len(asked.tokens), dtype=DTYPE)
        nats = torch.zeros_like(right)
        for start in range(0, len(asked.tokens), self.batch):
            rows = asked.tokens[start : start + self.batch]
            hooks: list[Hook] = replaced.at(start, len(rows)) if replaced else []
            if first:
                hooks = [(z_name(layer), self._keep(layer)) for layer in range(self.layers)]
            mine = (asked.row >= start) & (asked.row < start + len(rows))
            row, place, wanted = asked.row[mine], asked.place[mine], asked.wanted[mine]
            with quietly(self.model) as device:
                logits = self.model.run_with_hooks(rows.to(device), fwd_hooks=hooks)
                at = (row - start).to(logits.device), place.to(logits.device)
                logits = logits[at].double().cpu()
            self.passes += 1
            hit = (logits.argmax(-1) == wanted).to(DTYPE)
            said = logits.log_softmax(-1).gather(1, wanted[:, None])[:, 0]
            right.index_add_(0, row, hit)
            nats.index_add_(0, row, said)
        count = torch.bincount(asked.row, minlength=len(right)).clamp(min=1)
        return right / count, nats / count

    def _keep(self, layer: int) -> Any:
        def keep(z: Tensor, hook: Any = None) -> Tensor:
            self.given[layer].append(split_heads(z, self.n_heads).detach().float().cpu())
            return z

        return keep


@dataclass(frozen=True)
class _Replacement:
    heads: tuple[HeadIndex, ...]
    n_heads: int
    given: Mapping[int, Tensor]

    def at(self, start: int, count: int) -> list[Hook]:
        part = {k: v if len(v) == 1 else v[start : start + count] for k, v in self.given.items()}
        return replacing_hooks(self.heads, self.n_heads, part)
