"""Coverage keeps the places that work, winning is strict, and the relation's null is calibrated."""

import pytest
import torch

from imir_detect import detect_circuits
from imir_detect.circuits.probe import Probe, best_rows, cover, lattice, near_best, wins
from imir_detect.circuits.relation import Relation, _ReadOut, estimate_relation, outlier, row_null
from imir_detect.frame.lookups import matching_contexts
from imir_detect.models.planted import PlantedSpec, build
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights

F64 = torch.float64


def test_cover_finds_the_even_places_of_a_circuit_trained_on_blocks() -> None:
    generator = torch.Generator().manual_seed(0)
    contexts = matching_contexts(3000, 11, torch.arange(30), generator=generator)
    works = contexts.match % 2 == 0
    score = (works & (torch.rand(3000, generator=generator) < 0.95)).double()
    cells = cover(score, contexts, 11)
    assert cells.any(0).nonzero()[:, 0].tolist() == [0, 2, 4, 6, 8]
    assert cells.any(1)[2:].all()


def test_cover_finds_the_one_row_of_a_circuit_that_answers_at_the_end_only() -> None:
    generator = torch.Generator().manual_seed(0)
    contexts = matching_contexts(512, 13, torch.arange(30), generator=generator)
    works = (contexts.match % 2 == 0) & (contexts.query == 12)
    chance = torch.where(works, 0.9, 0.2)  # elsewhere it guesses
    score = (torch.rand(512, generator=generator) < chance).double()
    cells = cover(score, contexts, 13)
    assert cells.any(1).nonzero()[:, 0].tolist() == [12]
    assert lattice(cells).any(0).nonzero()[:, 0].tolist() == [0, 2, 4, 6, 8, 10, 12]


def test_a_lattice_has_the_columns_that_were_left_out_on_the_same_stride() -> None:
    def columns(*kept: int) -> list[int]:
        cells = torch.zeros(13, 13, dtype=torch.bool)
        cells[12, list(kept)] = True
        assert lattice(cells).any(1).nonzero()[:, 0].tolist() == [12]
        return lattice(cells)[12].nonzero()[:, 0].tolist()

    assert columns(2, 4, 8, 10) == [0, 2, 4, 6, 8, 10, 12]  # blocks of two
    assert columns(2, 5, 8) == [2, 5, 8, 11]  # blocks of three, the second token
    assert columns(1, 2, 3, 4, 6, 9) == list(range(13))  # no blocks
    assert columns(3, 7) == [1, 3, 5, 7, 9, 11]  # two: of blocks of two, or of all
    assert columns(3, 8) == list(range(13))


def test_the_best_rows_leave_out_those_that_are_merely_near() -> None:
    generator = torch.Generator().manual_seed(0)
    contexts = matching_contexts(4000, 9, torch.arange(30), generator=generator)
    score = torch.where(contexts.query == 8, 1.0, 0.9).double()
    cells = torch.ones(9, 9, dtype=torch.bool)
    assert best_rows(score, contexts, cells).any(1).nonzero()[:, 0].tolist() == [8]
    assert best_rows(torch.ones(4000, dtype=F64), contexts, cells).any(1)[2:].all()


def test_places_seen_once_do_not_set_the_bar() -> None:
    score = torch.tensor([1.0] + [0.5] * 40, dtype=F64)
    place = torch.tensor([0] + [1] * 40)
    kept = near_best(score, place, torch.ones(41, dtype=torch.bool), 2)
    assert kept.tolist() == [True, True]


def test_a_tie_does_not_win() -> None:
    weights = read_weights(ModelSpec(4, 3, d_model=4, n_heads=1).boot(seed=0))
    weights.W_U.copy_(torch.eye(4))
    rows = torch.tensor([[2.0, 1, 0, 0], [1.0, 1, 0, 0]], dtype=F64)
    assert wins(weights, rows, torch.tensor([0, 0])).tolist() == [1.0, 0.0]


def test_a_lead_that_single_precision_cannot_hold_does_not_win() -> None:
    weights = read_weights(ModelSpec(4, 3, d_model=4, n_heads=1).boot(seed=0))
    weights.W_U.copy_(torch.eye(4))
    # Next to a residual of length 1 a logit of 1e-8 is round-off of the weights; 1e-6 is not.
    rows = torch.tensor([[1e-8, 0, 0, -1.0], [1e-6, 0, 0, -1.0]], dtype=F64)
    assert wins(weights, rows, torch.tensor([0, 0])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("spec", "kinds"),
    [
        (PlantedSpec("prefix_match", seed=1), ["previous_token", "prefix_match"]),
        (PlantedSpec("duplicate_token", seed=0), ["duplicate_token"]),
    ],
)
def test_round_off_is_no_circuit(spec: PlantedSpec, kinds: list[str]) -> None:
    # Planted without noise, nothing but the circuit reaches the logits, to 1e-8.
    assert [circuit.kind for circuit in detect_circuits(build(spec)).circuits] == kinds


def test_the_row_null_is_beaten_by_normal_rows_every_other_time() -> None:
    rows = torch.randn(4000, 40, generator=torch.Generator().manual_seed(0), dtype=F64)
    top = rows.max(1)
    rate = float((top.values > row_null(rows, top.indices)).double().mean())
    assert 0.45 < rate < 0.6  # of four thousand: a standard error of 0.008
    clear = float((top.values > row_null(rows, top.indices, level=0.95)).double().mean())
    assert 0.04 < clear < 0.06


def test_the_outlier_bar_is_grubbs_table() -> None:
    """Grubbs (1950): of 10 draws, the largest lies within 2.176 standard deviations of the mean of
    all with chance 0.95. Leaving it out of both gives the bar."""
    n, g = 10, 2.176
    t = ((n - 2) * n * g**2 / ((n - 1) ** 2 - n * g**2)) ** 0.5
    expected = t * (n / (n - 2)) ** 0.5
    assert float(outlier(torch.tensor([n - 1]), 0.95)) == pytest.approx(expected, rel=2e-2)


def test_fresh_models_with_tied_embeddings_have_no_relation() -> None:
    """Half of the tokens of a random symmetric table are each other's largest entry."""
    for seed in range(12):
        spec = ModelSpec(30, 10, n_heads=2, d_model=16, norm=(None, "LN")[seed % 2], d_mlp=16)
        model = spec.boot(seed=seed)
        with torch.no_grad():
            own = dict(model.named_parameters())
            unembed = next(p for name, p in own.items() if "head" in name or "unembed" in name)
            embed = next(p for name, p in own.items() if "tok_embed" in name)
            unembed.copy_(embed)
        weights = read_weights(model)
        table = weights.W_E @ weights.W_U
        table = table - table.mean(0) - table.mean(1, keepdim=True)
        assert torch.allclose(table, table.T, atol=1e-5)
        assert len(estimate_relation(Probe(weights, torch.arange(30), 10, seed=seed)).named) == 0


def test_direct_path_heads_and_mlps_add_up_to_the_whole_read_out() -> None:
    spec = ModelSpec(12, 8, n_layers=2, n_heads=2, d_model=8, d_mlp=12, init_range=0.5)
    probe = Probe(read_weights(spec.boot(seed=1)), torch.arange(12), 8)
    seen, places = _ReadOut.take(probe, probe.vocabulary, stream=2), torch.arange(1, 8)
    parts = [seen.table(places, part=k).fill_diagonal_(0) for k in range(5)]
    off = ~torch.eye(12, dtype=torch.bool)
    # Positions add to the whole what the parts lack; centring over tokens takes it away
    # where every token was asked at every place.
    gap = seen.table(places)[off] - sum(parts)[off]
    assert len(seen.parts) == 5
    assert float(gap.abs().max()) < 0.2 * float(seen.table(places)[off].abs().max())


def test_fresh_models_have_no_relation() -> None:
    found = 0
    for seed in range(40):
        spec = ModelSpec(30, 10, n_heads=2, d_model=16, init_range=(0.1, 1.0)[seed % 2])
        weights = read_weights(spec.boot(seed=seed))
        probe = Probe(weights, torch.arange(30), 10, seed=seed)
        found += len(estimate_relation(probe).named) > 0
    assert found == 0


def test_relations_know_their_tokens() -> None:
    relation = Relation(torch.tensor([1, 0, 4, -1, -1, -1]), estimated=False)
    assert relation.named.tolist() == [0, 1, 2]
    assert relation.coverage == 0.5
    assert relation.pairs(2) == [(0, 1), (1, 0)]
