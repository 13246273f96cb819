"""What every head of a model measurably does on its task: attention, and what ablating it costs.

Measured on the task's own probe for fresh associations, where blocks are a key and its value and
the query stands at the end: attention of the query to the earlier copy of its token and to the
answer behind it, and attention of the answer's place to the place before it. Ablation replaces a
head's output by its mean over the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import HeadIndex
from imir_detect.tasks import Task
from imir_detect.training.loop import EVALUATION_SEED
from imir_detect.weights.run import run_logits

SAMPLES = 512
ATTENDS = 0.4  # mean attention from which a head is said to look somewhere
ABSENT = 0.2  # and up to which it is said not to
MATTERS = 0.05  # share of the answer's margin that a head's ablation must cost
PAIRED = ("recall", "ngram", "k_hop")  # tasks that ask for what follows the query's earlier copy
ROLES = ("previous_token", "duplicate_token", "induction")


def head_measures(bridge: Any, task: Task) -> list[dict[str, Any]]:
    """One row a head, in order: {"layer", "head", "back", "copy", "answer", "cost", "cost_back"};
    [] for a task without fresh associations of two-token blocks.

    `back`, `copy`, `answer` are mean attentions in [0, 1]; the costs are the shares of the answer's
    logit margin (over the best other token) that ablating the head takes away: at the query
    (`cost`), and at the answer's place (`cost_back`).
    """
    generator = torch.Generator().manual_seed(EVALUATION_SEED + 1)
    batch = task.probe("icl", SAMPLES, generator=generator)
    if batch is None or batch.positions is not None or task.name not in PAIRED:
        return []
    rows, tokens = torch.arange(len(batch)), batch.tokens
    answer, query = batch.answer_position[:, -1], tokens.shape[1] - 1
    places = {"cost": torch.full_like(answer, query), "cost_back": answer}
    intact, patterns = _run(bridge, tokens)
    margin = float(_margin(intact, batch.targets[:, -1]).mean())
    found = []
    for layer, pattern in enumerate(patterns):
        for head in range(pattern.shape[1]):
            own = pattern[:, head]
            row = {
                "layer": layer,
                "head": head,
                "back": float(own[rows, answer, answer - 1].mean()),
                "copy": float(own[rows, query, answer - 1].mean()),
                "answer": float(own[rows, query, answer].mean()),
            }
            for name, place in places.items():
                logits = _ablated(bridge, tokens, (layer, head), place)
                lost = margin - float(_margin(logits, batch.targets[:, -1]).mean())
                row[name] = lost / margin if margin > 0 else 0.0
            found.append({k: round(v, 4) for k, v in row.items()})
    return found


def _run(bridge: Any, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
    return run_logits(bridge, tokens)[:, -1], attention_patterns(bridge, tokens)


def _ablated(bridge: Any, tokens: Tensor, head: HeadIndex, place: Tensor) -> Tensor:
    """Last logits with a head's output, at one place a sequence, replaced by its mean over the
    batch there."""
    layer, index = head
    rows, heads = torch.arange(len(tokens)), bridge.cfg.n_heads

    def ablate(z: Tensor, hook: Any) -> Tensor:
        split = z.reshape(*z.shape[:2], heads, -1).clone()
        split[rows, place, index] = split[:, :, index].mean(0)[place]
        return split.reshape(z.shape)

    with torch.no_grad():
        hooks = [(f"blocks.{layer}.attn.hook_z", ablate)]
        logits: Tensor = bridge.run_with_hooks(tokens, fwd_hooks=hooks)[:, -1]
    return logits.double()


def roles_of(measures: list[dict[str, Any]]) -> dict[HeadIndex, dict[str, bool | None]]:
    """For every head, whether it plays each role: True, False, or None where it is ambiguous (mean
    attention between `ABSENT` and `ATTENDS`, or a cost too small to tell).

    - `induction`: the query attends to the answer, and ablating the head there costs margin.
    - `duplicate_token`: the query attends to the earlier copy of its token.
    - `previous_token`: the answer's place attends one back, and ablating the head there does.
    """
    result = {}
    for row in measures:
        looks = {
            role: _looks(row[key])
            for role, key in zip(ROLES, ("back", "copy", "answer"), strict=True)
        }
        for role, cost in (("induction", "cost"), ("previous_token", "cost_back")):
            if looks[role] and row[cost] < MATTERS:
                looks[role] = None
        result[(row["layer"], row["head"])] = looks
    return result


def _looks(attention: float) -> bool | None:
    return None if ABSENT < attention < ATTENDS else attention >= ATTENDS


def attention_patterns(bridge: Any, tokens: Tensor) -> list[Tensor]:
    """Attention (n, head, pos, pos) of every layer, from running the model."""
    found: dict[str, Tensor] = {}

    def keep(pattern: Tensor, hook: Any) -> None:
        found[hook.name] = pattern.detach().clone()

    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(bridge.cfg.n_layers)]
    with torch.no_grad():
        bridge.run_with_hooks(tokens, fwd_hooks=[(name, keep) for name in names])
    return [found[name].double() for name in names]


def _margin(logits: Tensor, wanted: Tensor) -> Tensor:
    own = logits.gather(1, wanted[:, None])
    others = logits.scatter(1, wanted[:, None], float("-inf")).max(1, keepdim=True).values
    return (own - others)[:, 0]
