"""Position profiles: how much attention each head gives to "so many tokens back"."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from imir_detect.coordinates.pathsum import Attending


@dataclass(frozen=True)
class Profile:
    """One point of a head's profile: mean attention, in [0, 1], to the token `back` before."""

    layer: int
    head: int
    back: int
    attention: float


def position_profiles(trace: Attending) -> tuple[Profile, ...]:
    """The profile of every head: f(back) = mean over i >= back of attention[i, i - back].

    The mean runs over the trace's contexts and over all queries that have such a token; the rows
    are in order of layer, head, back, with back in 0 .. pos - 1. For a head whose scores depend on
    distance alone this is its whole positional behaviour; peaks at one distance show a shift unit.
    Far distances rest on few queries: at back = pos - 1 on the last one only.
    """
    rows = []
    for layer, attention in enumerate(trace.attention):
        mean = attention.mean(0)
        size = mean.shape[-1]
        place = torch.arange(size)
        back = place[:, None] - place
        seen = back >= 0
        total = mean.new_zeros(len(mean), size).index_add_(1, back[seen], mean[:, seen])
        for head, values in enumerate((total / (size - place)).tolist()):
            rows += [Profile(layer, head, back, value) for back, value in enumerate(values)]
    return tuple(rows)
