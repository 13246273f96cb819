"""The coordinate model as an objective of Algorithm 1: caches, batched candidates, estimates.

Removing a direction of layer l leaves all earlier layers alone. So one pass with everything alive
is kept, a candidate's scores are the kept ones minus c A_q K_S A_k^T, and only the layers after it
are run again, for a whole batch of candidates at once. Of the last layer, only the last query
counts, and its candidates cost little more than a softmax each.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from imir_detect._typing import Bool, Float, Int
from imir_detect.frame.basis import Coefficients
from imir_detect.models import coordinates as co

CHUNK = 2**23  # numbers in the largest tensor of one batch of candidates


class CoordinateObjective:
    """Coefficients and the sequences they are judged on. Meets `circuits.eliminate.Objective`.

    `reuse` False runs every layer of every pass: the literal algorithm's cost.
    """

    def __init__(self, coefficients: Coefficients, data: co.Kernels, *, reuse: bool = True) -> None:
        self.coefficients, self.data, self.reuse = coefficients, data, reuse
        self._pass: co.Pass | None = None

    @property
    def size(self) -> int:
        return len(self.flat)

    @cached_property
    def flat(self) -> Float[Tensor, " direction"]:
        return self.coefficients.flat().to(self.data.scores.dtype)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each layer's directions begin in the flat order, the output's, and the end."""
        sizes = [a.numel() for a in self.coefficients.attention]
        sizes.append(self.coefficients.output.numel())
        return tuple(torch.tensor([0, *sizes]).cumsum(0).tolist())

    @property
    def n_layers(self) -> int:
        return len(self.coefficients.attention)

    def at(self, alive: Bool[Tensor, " direction"]) -> Coefficients:
        """The coefficients with everything that is not alive at zero."""
        return self.coefficients.like(self.flat * alive)

    def evaluate(self, alive: Bool[Tensor, " direction"]) -> tuple[float, float]:
        found = self._run(alive).logits
        loss = torch.nn.functional.cross_entropy(found, self.data.answers)
        return float(loss), co.accuracy(found, self.data.answers)

    # -- exact, batched ----------------------------------------------------------------------

    def without(
        self, alive: Bool[Tensor, " direction"], candidates: Int[Tensor, " candidate"]
    ) -> Float[Tensor, " candidate"]:
        base = self._run(alive)
        found = torch.empty(len(candidates), dtype=self.flat.dtype)
        for layer in range(self.n_layers + 1):
            low, high = self.starts[layer], self.starts[layer + 1]
            own = ((candidates >= low) & (candidates < high)).nonzero()[:, 0]
            for part in torch.split(own, self._batch(base, layer)):
                found[part] = self._losses(self._changed(base, layer, candidates[part] - low))
        return found

    def _run(self, alive: Bool[Tensor, " direction"]) -> co.Pass:
        """A pass that starts where the last one's activations still hold."""
        earlier = self._pass if self.reuse else None
        found = co.run(self.at(alive), self.data, prune=self.reuse, earlier=earlier)
        self._pass = found
        return found

    def _batch(self, base: co.Pass, layer: int) -> int:
        """Candidates of `layer` in one batch."""
        widest = max(s[0].numel() for s in base.streams[layer + 1 :] or base.streams[-1:])
        return max(1, CHUNK // (self.data.batch * max(1, widest)))

    def _changed(self, base: co.Pass, layer: int, index: Tensor) -> Tensor:
        """Logits (candidate, batch, vocab) without each direction of `layer` in `index`."""
        c, stream, paths = base.coefficients, base.streams[layer], base.paths[layer]
        if layer == self.n_layers:
            s, p = torch.unravel_index(index, self.coefficients.output.shape)
            p, known = _place(paths, p)
            through = stream[:, :, -1].transpose(0, 1)[p]  # (candidate, batch, pos)
            part = torch.einsum("kbt,kbtv->kbv", through, self.data.readout[s])
            return base.logits - (c.output[s, p] * known)[:, None, None] * part
        head, s, q, k = torch.unravel_index(index, self.coefficients.attention[layer].shape)
        (q, q_known), (k, k_known) = _place(paths, q), _place(paths, k)
        last = layer == self.n_layers - 1
        queries = (stream[:, :, -1:] if last else stream).transpose(0, 1)
        left = queries[q] @ self.data.scores[s]  # (candidate, batch, query, pos)
        change = left @ stream.transpose(0, 1)[k].transpose(-1, -2)
        scores = base.scores[layer].expand(len(index), *base.scores[layer].shape).clone()
        amounts = c.attention[layer][head, s, q, k] * (q_known & k_known)
        scores[torch.arange(len(index)), :, head] -= amounts[:, None, None, None] * change
        stream = co.carry(
            stream.expand(len(index), *stream.shape),
            scores,
            paths,
            base.paths[layer + 1],
            c.attention[0].shape[0] + 1,
            layer,
            last=last,
        )
        for later in range(layer + 1, self.n_layers):
            _, stream = co.layer_step(c, later, stream, self.data, base.paths)
        return co.read_out(c.output, stream, self.data.readout)

    def _losses(self, logits: Tensor) -> Tensor:
        answers = self.data.answers.expand(len(logits), -1)
        right = logits.gather(-1, answers[..., None])[..., 0]
        return (logits.logsumexp(-1) - right).mean(-1)

    # -- estimates ---------------------------------------------------------------------------

    def margins(
        self, alive: Bool[Tensor, " direction"]
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch direction"]]:
        """Margins and their changes, -c times the gradient in the coefficient."""
        with torch.enable_grad():
            base = co.run(self.at(alive), self.data, prune=True, keep_slopes=True)
            out = base.logits if base.logits.requires_grad else base.logits.requires_grad_()
            answers = self.data.answers[:, None]
            others = out.scatter(1, answers, float("-inf")).logsumexp(1)
            margin = out.gather(1, answers)[:, 0] - others
            *to_scores, to_logits = torch.autograd.grad(
                margin.sum(), [*base.scores, out], allow_unused=True, materialize_grads=True
            )
        c, kernel = base.coefficients, self.data.scores.transpose(0, 1)
        batch, parts = self.data.batch, []
        for layer, slope in enumerate(to_scores):
            stream, p = base.streams[layer].detach(), base.paths[layer]
            queries = stream[:, :, -1:] if layer == self.n_layers - 1 else stream
            left = (queries[:, None] @ kernel[:, :, None]).flatten(3).flatten(1, 2)
            seen = slope.unsqueeze(2) @ stream.unsqueeze(1)  # (batch, head, path, query, pos)
            g = left[:, None] @ seen.flatten(3).transpose(-1, -2)  # (batch, head, (s, q), path)
            full = self.flat.new_zeros(batch, *self.coefficients.attention[layer].shape)
            full[:, :, :, p[:, None], p] = -c.attention[layer] * g.reshape(
                *g.shape[:2], -1, len(p), len(p)
            )
            parts.append(full.flatten(1))
        stream = base.streams[-1].detach()[:, :, -1]
        g = torch.einsum("bv,sbtv,bpt->bsp", to_logits, self.data.readout, stream)
        full = self.flat.new_zeros(batch, *self.coefficients.output.shape)
        full[:, :, base.paths[-1]] = -c.output * g
        return margin.detach(), torch.cat([*parts, full.flatten(1)], dim=1)


def _place(paths: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Index of each wanted path among those carried, and whether it is (else its c is zero)."""
    place = torch.searchsorted(paths, wanted.contiguous()).clamp(max=len(paths) - 1)
    return place, paths[place] == wanted
