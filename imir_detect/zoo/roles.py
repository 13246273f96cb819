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
from imir_detect.weights.run import run_ablated, run_logits

SAMPLES = 512
ATTENDS = 0.3  # mean attention from which a head is said to look somewhere
MATTERS = 0.1  # share of the answer's margin that a head's ablation must cost
PAIRED = ("recall", "ngram", "k_hop")  # tasks that ask for what follows the query's earlier copy
ROLES = ("previous_token", "duplicate_token", "induction")


def head_measures(bridge: Any, task: Task) -> list[dict[str, Any]]:
    """One row a head, in order: {"layer", "head", "back", "copy", "answer", "cost"}; [] for a task
    without fresh associations of two-token blocks.

    `back`, `copy`, `answer` are mean attentions in [0, 1]; `cost` is the share of the answer's
    logit margin (over the best other token) that mean-ablating the head takes away.
    """
    generator = torch.Generator().manual_seed(EVALUATION_SEED + 1)
    batch = task.probe("icl", SAMPLES, generator=generator)
    if (
        batch is None
        or batch.positions is not None
        or task.name not in ("recall", "ngram", "k_hop")
    ):
        return []
    rows = torch.arange(len(batch))
    answer, query = batch.answer_position[:, -1], batch.tokens.shape[1] - 1
    wanted = batch.targets[:, -1]
    patterns = attention_patterns(bridge, batch.tokens)
    intact = float(_margin(run_logits(bridge, batch.tokens)[:, -1], wanted).mean())
    found = []
    for layer, pattern in enumerate(patterns):
        for head in range(pattern.shape[1]):
            own = pattern[:, head]
            ablated = run_ablated(bridge, batch.tokens, [(layer, head)])[:, -1]
            lost = intact - float(_margin(ablated, wanted).mean())
            found.append(
                {
                    "layer": layer,
                    "head": head,
                    "back": round(float(own[rows, answer, answer - 1].mean()), 4),
                    "copy": round(float(own[rows, query, answer - 1].mean()), 4),
                    "answer": round(float(own[rows, query, answer].mean()), 4),
                    "cost": round(lost / max(intact, 1e-6), 4) if intact > 0 else 0.0,
                }
            )
    return found


def roles_of(measures: list[dict[str, Any]]) -> dict[HeadIndex, set[str]]:
    """The roles that each head's measures earn; a head may have several, or none.

    - `induction`: the query attends to the answer, and ablating the head costs margin.
    - `duplicate_token`: the query attends to the earlier copy of its token.
    - `previous_token`: the answer's place attends one back.
    """
    result = {}
    for row in measures:
        roles = set()
        if row["answer"] >= ATTENDS and row["cost"] >= MATTERS:
            roles.add("induction")
        if row["copy"] >= ATTENDS:
            roles.add("duplicate_token")
        if row["back"] >= ATTENDS:
            roles.add("previous_token")
        result[(row["layer"], row["head"])] = roles
    return result


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
