"""What a method may run a model on: clean and corrupt sequences, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks.base import IGNORE, Batch, Task


@dataclass(frozen=True)
class Prompts:
    """Clean sequences, corrupt ones drawn independently from the same task, one question each.

    - `tokens`, `corrupt` (n, pos): the same positions throughout.
    - `query` (n): the place that is asked. `answer` (n): the right token. `wrong` (n): the right
      token of the corrupt sequence, or another where the two agree.
    - `sign`: -1 where the circuit pushes the answer down.
    """

    tokens: Int[Tensor, "n pos"]
    corrupt: Int[Tensor, "n pos"]
    query: Int[Tensor, " n"]
    answer: Int[Tensor, " n"]
    wrong: Int[Tensor, " n"]
    sign: int = 1

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice) -> Prompts:
        """The prompts of a slice."""
        return Prompts(
            self.tokens[rows],
            self.corrupt[rows],
            self.query[rows],
            self.answer[rows],
            self.wrong[rows],
            self.sign,
        )

    def asked(self, values: Float[Tensor, "n pos ..."]) -> Tensor:
        """The entries at every sequence's query."""
        return values[torch.arange(len(self)), self.query]

    def logit_diff(self, logits: Float[Tensor, "n vocab"]) -> Float[Tensor, " n"]:
        """Answer's logit minus the wrong one's, in nats; the usual attribution metric."""
        right = logits.gather(1, self.answer[:, None])
        return self.sign * (right - logits.gather(1, self.wrong[:, None]))[:, 0]

    def right(self, logits: Float[Tensor, "... n vocab"]) -> Tensor:
        """Whether the answer's logit beats every other by more than float32 round-off."""
        signed = self.sign * logits
        answer = self.answer[:, None].expand(*logits.shape[:-1], 1)
        own = signed.gather(-1, answer)[..., 0]
        others = signed.scatter(-1, answer, float("-inf")).amax(-1)
        return own - others > 1e-6 * logits.abs().amax(-1).clamp(min=1.0)


def draw_prompts(task: Task, n: int, *, seed: int, sign: int = 1) -> Prompts:
    """n prompts of a task. Of several questions in a sequence, the last is asked.

    Raises InvalidArgumentError where a task places its tokens at positions of their own.
    """
    generator = torch.Generator().manual_seed(seed)
    clean, corrupt = task.sample(n, generator=generator), task.sample(n, generator=generator)
    if clean.positions is not None:
        raise InvalidArgumentError(
            "positions differ between the sequences of this task",
            got="a batch with position indices of its own",
            wanted="positions 0, 1, 2, ... in every sequence",
            todo="use consecutive offsets: what an ablation takes away depends on them",
        )
    query, answer = _last_question(clean)
    _, wrong = _last_question(corrupt)
    size = task.vocab_size
    wrong = torch.where(wrong == answer, (answer + 1) % size, wrong)
    return Prompts(clean.tokens, corrupt.tokens, query, answer, wrong, sign)


def _last_question(batch: Batch) -> tuple[Tensor, Tensor]:
    asked = batch.targets != IGNORE
    places = torch.arange(batch.tokens.shape[1])
    query = torch.where(asked, places, -1).amax(1)
    return query, batch.targets.gather(1, query[:, None])[:, 0]
