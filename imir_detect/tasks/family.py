"""What the tasks share: defaults for all of them, and the placing of blocks."""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks.base import IGNORE, Axis, Batch, Ceiling, Task
from imir_detect.tasks.blocks import Offsets, sample_positions
from imir_detect.tasks.ceilings import certain
from imir_detect.tasks.labels import Assumptions, ExpectedCircuit, Symmetry, permutations_of


@runtime_checkable
class LabelledTask(Task, Protocol):
    """A task that carries its labels: what the registry holds, and the conformance suite tests."""

    @property
    def control(self) -> bool:
        """Whether a detector must not call the solution an in-context circuit."""
        ...

    @property
    def label_noise(self) -> float: ...

    @property
    def symmetries(self) -> tuple[Symmetry, ...]: ...

    @property
    def assumptions(self) -> Assumptions: ...

    @property
    def expected_circuits(self) -> tuple[ExpectedCircuit, ...]:
        """Alternatives: each by itself solves the task, or the part it says it covers."""
        ...

    def law(self, batch: Batch) -> Float[Tensor, "asked vocab"] | None:
        """Probabilities of the target at every asked position, in the order of the positions.

        float64 on the CPU, rows sum to 1; what sees the sequence and knows the task (R included)
        can do no better. None where no closed form is at hand.
        """
        ...

    def token_name(self, token: int) -> str: ...


class TaskDefaults:
    """Defaults of a task without relation, with consecutive positions and a certain answer.

    A task gives `draw` (clean sequences) and their law: `last_law` where one question stands at
    the end, else `clean_law`. Label noise is added here.
    """

    name: ClassVar[str]
    control: ClassVar[bool] = False
    label_noise: float

    @property
    def vocab_size(self) -> int:
        raise NotImplementedError

    @property
    def length(self) -> int:
        raise NotImplementedError

    @property
    def n_positions(self) -> int:
        return self.length

    @property
    def relation(self) -> Int[Tensor, " vocab"] | None:
        return None

    @property
    def competitors(self) -> int:
        return self.length

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        return ()

    @property
    def assumptions(self) -> Assumptions:
        return Assumptions(None, False, None)

    def draw(self, n: int, *, generator: torch.Generator) -> Batch:
        """`n` sequences without label noise."""
        raise NotImplementedError

    def clean_law(self, batch: Batch) -> Float[Tensor, "asked vocab"] | None:
        """`law` without label noise."""
        return self.last_law(batch)[batch.targets[:, -1] != IGNORE]

    def last_law(self, batch: Batch) -> Float[Tensor, "n vocab"]:
        """The law after the last token of every sequence, without label noise."""
        raise NotImplementedError

    def sample(self, n: int, *, generator: torch.Generator) -> Batch:
        """`n` sequences by the task's law, from a CPU generator; `Batch.to` moves them."""
        check_generator(generator)
        batch = self.draw(n, generator=generator)
        return with_label_noise(batch, self.label_noise, self.vocab_size, generator=generator)

    def probe(self, axis: Axis, n: int, *, generator: torch.Generator) -> Batch | None:
        """`icl`: clean sequences; None for controls and for the in-weights axis, which needs R."""
        if self.control or axis == "iwl":
            return None
        check_generator(generator)
        return self.draw(n, generator=generator)

    def law(self, batch: Batch) -> Float[Tensor, "asked vocab"] | None:
        """See `LabelledTask.law`."""
        clean = self.clean_law(batch.to("cpu"))
        if clean is None:
            return None
        return (1 - self.label_noise) * clean + self.label_noise / self.vocab_size

    def ceiling(self) -> Ceiling:
        """The answer is certain but for label noise."""
        best, entropy = certain(self.label_noise, self.vocab_size)
        return Ceiling(best, entropy, None, None, best, entropy)

    def token_name(self, token: int) -> str:
        return f"t{token}"


class BlockTask(TaskDefaults):
    """A task whose blocks may stand at positions of their own, over lexinvariant tokens.

    `fixed_tokens` tokens come first in the vocabulary, with a meaning of their own; the rest are
    rare: drawn anew for every sequence.
    """

    n_rare: int
    offsets: Offsets
    positions: int | None
    fixed_tokens: ClassVar[tuple[str, ...]] = ()

    @property
    def block_lengths(self) -> tuple[int, ...]:
        """Tokens of each block, the cut one at the end included."""
        raise NotImplementedError

    @property
    def n_fixed(self) -> int:
        return len(self.fixed_tokens)

    @property
    def vocab_size(self) -> int:
        return self.n_fixed + self.n_rare

    @property
    def length(self) -> int:
        return sum(self.block_lengths)

    @property
    def n_positions(self) -> int:
        if self.offsets == "consecutive":
            return self.length
        return self.positions or 2 * max(self.block_lengths) * len(self.block_lengths)

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        rare = range(self.n_fixed, self.vocab_size)
        return (
            Symmetry("rare tokens", "token", permutations_of([rare], self.vocab_size)),
            block_offsets(self.offsets, self.n_positions, max(self.block_lengths)),
        )

    @property
    def assumptions(self) -> Assumptions:
        return Assumptions(None, self.offsets == "random", True)

    def place(self, n: int, *, generator: torch.Generator) -> Int[Tensor, "n pos"] | None:
        """Position indices of n sequences."""
        return sample_positions(
            n, self.block_lengths, self.n_positions, self.offsets, generator=generator
        )

    def token_name(self, token: int) -> str:
        fixed = token < self.n_fixed
        return self.fixed_tokens[token] if fixed else f"r{token - self.n_fixed}"


def block_offsets(offsets: Offsets, n_positions: int, longest: int) -> Symmetry:
    """The symmetry "every block starts where it likes", with the reason where it is broken."""
    starts = n_positions - longest + 1
    moves = permutations_of([range(starts)], starts)
    why = {
        "random": "",
        "consecutive": "blocks stand one after the other from position 0",
        "disjoint": "blocks keep out of each other's cells",
    }[offsets]
    return Symmetry("block offsets", "position", moves, not why, why)


def check_generator(generator: torch.Generator) -> None:
    """Draws come from a CPU generator, so that a seed means the same data on every device."""
    if generator.device.type != "cpu":
        raise InvalidArgumentError(
            "tasks draw from a CPU generator, so that a seed gives the same data everywhere",
            got=f"a generator on {generator.device}",
            wanted="torch.Generator()",
            todo="sample with a CPU generator and move the batch: batch.to(device)",
        )


def with_label_noise(
    batch: Batch, noise: float, vocab_size: int, *, generator: torch.Generator
) -> Batch:
    """Targets replaced by a uniform token with probability `noise`.

    `answer_position` still says where the true answer stands.
    """
    asked = batch.targets != IGNORE
    n = int(asked.sum())
    noisy = torch.rand(n, generator=generator) < noise
    uniform = torch.randint(vocab_size, (n,), generator=generator)
    targets = batch.targets.clone()
    targets[asked] = torch.where(noisy, uniform, targets[asked])
    return Batch(batch.tokens, targets, batch.answer_position, batch.positions)


def ask_last(
    tokens: Int[Tensor, "n pos"],
    target: Int[Tensor, " n"],
    answer: Int[Tensor, " n"],
    positions: Int[Tensor, "n pos"] | None = None,
) -> Batch:
    """A batch that asks one question, at the last position."""
    targets = torch.full_like(tokens, IGNORE)
    places = torch.full_like(tokens, -1)
    targets[:, -1], places[:, -1] = target, answer
    return Batch(tokens, targets, places, positions)


def point_mass(target: Int[Tensor, " asked"], vocab_size: int) -> Float[Tensor, "asked vocab"]:
    """The law of a certain answer."""
    return torch.nn.functional.one_hot(target, vocab_size).double()


def last_place(
    column: Int[Tensor, "n blocks"], wanted: Int[Tensor, " n"], stride: int = 1, inside: int = 0
) -> Int[Tensor, " n"]:
    """Sequence index of the last block whose token in `column` is `wanted`; -1: none is.

    Blocks are `stride` long, and the column stands `inside` tokens after a block's start.
    """
    places = torch.arange(1, column.shape[1] + 1)
    last = ((column == wanted[:, None]) * places).max(dim=1).values - 1
    return torch.where(last >= 0, stride * last + inside, -1)


def last_seen(
    tokens: Int[Tensor, "n pos"], targets: Int[Tensor, "n pos"], vocab_size: int
) -> Int[Tensor, "n pos"]:
    """For every asked position, the last place up to it that shows the target; -1: none does."""
    last = torch.full((len(tokens), vocab_size), -1)
    place = torch.full_like(tokens, -1)
    for t in range(tokens.shape[1]):
        last.scatter_(1, tokens[:, t : t + 1], t)
        place[:, t : t + 1] = last.gather(1, targets[:, t : t + 1].clamp(min=0))
    return torch.where(targets != IGNORE, place, -1)
