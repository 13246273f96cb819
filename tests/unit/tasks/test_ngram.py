"""What is measured of in-context n-grams is asked where the answer's block stands once."""

import torch

from imir_detect.tasks import make_task


def test_the_probe_shows_the_query_block_once_whatever_the_burstiness() -> None:
    task = make_task("ngram", block_length=2, n_blocks=5, burstiness=3)
    generator = torch.Generator().manual_seed(0)
    shown = []
    for batch in (
        task.sample(200, generator=generator),
        task.probe("icl", 200, generator=generator),
    ):
        key, answer = batch.tokens[:, -1:], batch.targets[:, -1:]
        pairs = (batch.tokens[:, :-1:2] == key) & (batch.tokens[:, 1::2] == answer)
        shown.append(set(pairs.sum(1).tolist()))
    assert shown == [{3}, {1}]
    assert task.probe("iwl", 5, generator=generator) is None
