"""Algorithm 1 for any model that can be read into plain weights, on a batch of tokens.

The directions are the basis weights of the model's own embeddings and value maps: every head's
query-key form is written as its least-squares part in their span plus a rest, and the unembedding
likewise. Removing a direction takes c x_i B x_j^T from that head's scores (x as the head reads it,
normalised where the model has a norm); the rest, biases and MLPs stay as they are. Embeddings are
centred over tokens and over positions. Paths multiply: (H + 1)^l into layer l, so this is for small
models; a dense basis above `LARGEST_DESIGN` numbers is refused.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imir_detect._typing import Bool, Float, Int
from imir_detect.errors import InvalidArgumentError, UnsupportedModelError
from imir_detect.frame.basis import Coefficients, Frame
from imir_detect.frame.names import Direction
from imir_detect.frame.relations import selections
from imir_detect.linalg import ROUNDOFF
from imir_detect.weights.forward import causal_softmax, inverse_rms, mlp
from imir_detect.weights.model import ModelWeights

NOTHING_ASKED = -100


def weights_frame(
    weights: ModelWeights, *, relation: Int[Tensor, " vocab"] | None = None, shifts: int = 1
) -> Frame:
    """The frame of a model: identity, R where given, position identity, shifts 1 .. `shifts`."""
    if not weights.same_vocabulary:
        raise InvalidArgumentError(
            "output directions name input tokens",
            got=f"{weights.vocab_size} input and {weights.vocab_out} output tokens",
            wanted="one vocabulary",
            todo="analyse a model whose output vocabulary is its input vocabulary",
        )
    if not (weights.plain and weights.readable):
        raise UnsupportedModelError(
            "Algorithm 1 reads plain attention with learned positions only",
            got="; ".join(weights.notes)
            or "rotary or other positions, or an MLP that was not read",
            wanted="learned positions, bilinear scores, MLPs that were read",
            todo="use detect_circuits, which reads every position kind",
        )
    r = torch.full((weights.vocab_size,), -1) if relation is None else relation
    chosen = selections(r, weights.n_ctx, shifts=shifts, per_class=False)
    tokens = weights.W_E - weights.W_E.mean(0)
    places = weights.W_pos - weights.W_pos.mean(0)
    layers, heads = range(weights.n_layers), range(weights.n_heads)
    maps = torch.stack([torch.stack([weights.W_OV(i, h) for h in heads]) for i in layers])
    embedding = torch.cat([tokens, places])
    return Frame(embedding, weights.vocab_size, weights.n_layers, weights.n_heads, chosen, maps)


class WeightsObjective:
    """A model's loss on a batch with basis directions switched off. Meets `Objective`.

    - `tokens` (batch, pos); `targets` (batch, pos): the token to predict, -100 where none is.
    - `names`: the directions, in the order of every mask. `share`: of the squared norm of all
      query-key forms and the unembedding, how much lies in the span.

    The loss is the mean cross-entropy (nats) over the asked positions. Activations before the
    layer of a candidate are reused.
    """

    def __init__(
        self,
        weights: ModelWeights,
        tokens: Int[Tensor, "batch pos"],
        targets: Int[Tensor, "batch pos"],
        *,
        relation: Int[Tensor, " vocab"] | None = None,
        shifts: int = 1,
    ) -> None:
        if not bool((targets != NOTHING_ASKED).any(1).all()):
            raise InvalidArgumentError(
                "every sequence of the batch must ask for something",
                got="a row of targets that is -100 throughout",
                wanted="at least one target in each row",
                todo="drop the rows without targets",
            )
        self.weights, self.tokens, self.targets = weights, tokens, targets
        self.frame = weights_frame(weights, relation=relation, shifts=shifts)
        layers, heads = range(weights.n_layers), range(weights.n_heads)
        forms = tuple(torch.stack([weights.W_QK(i, h) for h in heads]) for i in layers)
        embed = self.frame.embedding[: weights.vocab_size]
        output = weights.W_U @ torch.linalg.pinv(embed.T)  # W_U = output E^T + rest
        self.coefficients = self.frame.project(forms, output)
        self.names: tuple[Direction, ...] = tuple(self.frame.directions())
        self.flat = self.coefficients.flat()
        inside, inside_output = self.frame.rebuild(self.coefficients)
        parts = [*inside, inside_output @ embed.T]
        whole = sum(float(f.square().sum()) for f in (*forms, weights.W_U))
        self.share = sum(float(p.square().sum()) for p in parts) / whole
        self._kept: tuple[Coefficients, list[Tensor]] | None = None
        self._cache: dict[int, Tensor] = {}

    @property
    def size(self) -> int:
        return len(self.flat)

    def evaluate(self, alive: Bool[Tensor, " direction"]) -> tuple[float, float]:
        logits, targets = self._asked(self._logits(alive))
        right = logits.gather(1, targets[:, None])[:, 0]
        others = logits.scatter(1, targets[:, None], float("-inf")).max(1).values
        loss = torch.nn.functional.cross_entropy(logits, targets)
        return float(loss), float((right - others > ROUNDOFF).double().mean())

    def logits(self, alive: Bool[Tensor, " direction"]) -> Float[Tensor, "asked vocab"]:
        """Logits at the asked positions, sequence by sequence, with the others off."""
        return self._asked(self._logits(alive))[0]

    def without(
        self, alive: Bool[Tensor, " direction"], candidates: Int[Tensor, " candidate"]
    ) -> Float[Tensor, " candidate"]:
        self._logits(alive)
        base = self._kept
        found = []
        for one in candidates.tolist():
            trial = alive.clone()
            trial[one] = False
            self._kept = base  # each candidate starts from the same kept activations
            logits, targets = self._asked(self._logits(trial))
            found.append(torch.nn.functional.cross_entropy(logits, targets))
        self._kept = base
        return torch.stack(found)

    def margins(
        self, alive: Bool[Tensor, " direction"]
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch direction"]]:
        """Margins and changes, averaged over each sequence's asked positions."""
        dead = self._dead(alive)
        streams: list[Tensor] = []
        kept_scores: list[Tensor] = []
        with torch.enable_grad():
            x = self._embed()
            for layer in range(self.weights.n_layers):
                streams.append(x.detach())
                found = self._scores(layer, x, dead)
                kept_scores.append(found.requires_grad_())
                x = self._after(layer, x, found)
            streams.append(x.detach())
            logits = self._read(x, dead).requires_grad_()
            asked = self.targets != NOTHING_ASKED
            index = self.targets.clamp(min=0)[..., None]
            others = logits.scatter(2, index, float("-inf")).logsumexp(2)
            margin = ((logits.gather(2, index)[..., 0] - others) * asked).sum(1) / asked.sum(1)
            *slopes, out = torch.autograd.grad(
                margin.sum(), [*kept_scores, logits], materialize_grads=True
            )
        parts = []
        for layer, slope in enumerate(slopes):
            read = self._through_paths(layer, streams[layer])  # (batch, pos, path, row)
            chosen = torch.einsum("bipm,smn->bsipn", read, self.frame.stack)
            seen = torch.einsum("bhij,bjkn->bhikn", slope, read)
            g = torch.einsum("bsiqn,bhikn->bhsqk", chosen, seen)
            parts.append((-self.coefficients.attention[layer] * g).flatten(1))
        read = self._through_paths(self.weights.n_layers, streams[-1])
        embed = self.frame.embedding
        table = self.frame.output_stack @ embed @ embed[: self.weights.vocab_size].T
        g = torch.einsum("bipm,smv,biv->bsp", read, table, out)
        parts.append((-self.coefficients.output * g).flatten(1))
        return margin.detach(), torch.cat(parts, dim=1) * alive

    # -- one pass ----------------------------------------------------------------------------

    def _dead(self, alive: Tensor) -> Coefficients:
        return self.coefficients.like(self.flat * ~alive)

    def _logits(self, alive: Tensor) -> Tensor:
        dead, streams = self._dead(alive), [self._embed()]
        if self._kept is not None:
            before, kept = self._kept
            pairs = zip(dead.attention, before.attention, strict=True)
            same = [torch.equal(a, b) for a, b in pairs]
            first = same.index(False) if False in same else len(same)
            streams = kept[: first + 1]
        for layer in range(len(streams) - 1, self.weights.n_layers):
            x = streams[-1]
            streams.append(self._after(layer, x, self._scores(layer, x, dead)))
        self._kept = (dead, streams)
        return self._read(streams[-1], dead)

    def _embed(self) -> Tensor:
        return self.weights.embed(self.tokens)

    def _scores(self, layer: int, x: Tensor, dead: Coefficients) -> Tensor:
        normed = x * inverse_rms(self.weights, x, layer)
        found = []
        for head in range(self.weights.n_heads):
            w = self.weights
            query = normed @ w.W_Q[layer, head] + w.b_Q[layer, head]
            key = normed @ w.W_K[layer, head] + w.b_K[layer, head]
            score = query @ key.transpose(-1, -2) / w.scale[layer]
            c = dead.attention[layer][head]
            if bool(c.any()):
                reads = self._reads(layer)
                gone = torch.einsum("spq,pma,smn,qnb->ab", c, reads, self.frame.stack, reads)
                score = score - normed @ gone @ normed.transpose(-1, -2)
            found.append(score)
        return torch.stack(found, dim=1)

    def _after(self, layer: int, x: Tensor, found: Tensor) -> Tensor:
        w = self.weights
        normed = x * inverse_rms(w, x, layer)
        values = causal_softmax(found) @ (normed[:, None] @ w.W_V[layer])
        x = x + torch.einsum("bhik,hkd->bid", values, w.W_O[layer]) + w.b_O[layer]
        return x + mlp(w, layer, x)

    def _read(self, x: Tensor, dead: Coefficients) -> Tensor:
        w = self.weights
        normed = x * inverse_rms(w, x, w.n_layers)
        embed = self.frame.embedding
        mixed = torch.einsum("sp,smn->pmn", dead.output, self.frame.output_stack)
        gone = torch.einsum("pma,pmn,nb->ab", self._reads(w.n_layers), mixed, embed)
        return normed @ (w.W_U - gone @ embed[: w.vocab_size].T) + w.b_U

    def _reads(self, layer: int) -> Tensor:
        if layer not in self._cache:
            self._cache[layer] = self.frame.reads(layer)
        return self._cache[layer]

    def _through_paths(self, layer: int, x: Tensor) -> Tensor:
        normed = x * inverse_rms(self.weights, x, layer)
        return torch.einsum("bia,pma->bipm", normed, self._reads(layer))

    def _asked(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        asked = self.targets != NOTHING_ASKED
        return logits[asked], self.targets[asked]
