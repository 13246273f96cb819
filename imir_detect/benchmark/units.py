"""Units: directions of a model's frame as what is scored, and a model run with some of them gone.

A unit is one basis weight (a head that reads "one back", or token identity through an earlier head)
or one output weight. Ablating it takes its share out of the weights; the rest of the head stays.
There is nothing to resample: units have truth for zero ablation only.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.benchmark.prompts import Prompts
from imir_detect.circuits.weights_objective import NOTHING_ASKED, WeightsObjective, weights_frame
from imir_detect.frame.names import Direction
from imir_detect.weights.model import ModelWeights

SHIFTS = 2  # token identity, R where it is asked, position identity, and so many places back


def all_units(
    weights: ModelWeights, relation: Int[Tensor, " vocab"] | None
) -> tuple[Direction, ...]:
    """Every unit of a model, in order of layer, head, selection and paths; output units last."""
    return tuple(weights_frame(weights, relation=relation, shifts=SHIFTS).directions())


class UnitModel:
    """A model on some prompts with every unit kept (1) or taken out of the weights (0).

    What `PatchedModel` is to edges: `size`, `run(keep)`, `full_logits`, `empty_logits`,
    `forwards`. `objective`: the loss, for Algorithm 1 and for slopes.
    """

    def __init__(
        self, weights: ModelWeights, prompts: Prompts, relation: Int[Tensor, " vocab"] | None
    ) -> None:
        self.prompts, self.forwards = prompts, 0
        targets = torch.full_like(prompts.tokens, NOTHING_ASKED)
        targets[torch.arange(len(prompts)), prompts.query] = prompts.answer
        self.objective = WeightsObjective(
            weights, prompts.tokens, targets, relation=relation, shifts=SHIFTS
        )

    @property
    def size(self) -> int:
        return self.objective.size

    def first_layer(self, index: int) -> int:
        """Every run starts at the embedding."""
        return 0

    @cached_property
    def full_logits(self) -> Float[Tensor, "n vocab"]:
        """Logits of the whole model at the queries."""
        return self.run(torch.ones(self.size))

    @cached_property
    def empty_logits(self) -> Float[Tensor, "n vocab"]:
        """Logits with every unit gone."""
        return self.run(torch.zeros(self.size))

    def run(self, keep: Float[Tensor, " unit"], *, first: int = 0) -> Float[Tensor, "n vocab"]:
        """Logits at the queries with the units whose `keep` is above one half."""
        self.forwards += 1
        return self.objective.logits(keep > 0.5)
