"""What is written is read back the same: every file format, on random content."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imir_detect import Circuit, Coverage, Edge, Report, Table, load_model, save_model
from imir_detect.benchmark.exchange import (
    from_acdc,
    from_mib,
    from_prune_scores,
    to_acdc,
    to_mib,
    to_prune_scores,
)
from imir_detect.benchmark.graph import all_edges, n_edges
from imir_detect.circuits.core import Kind
from imir_detect.circuits.verdict import read_fit, shipped_fit
from imir_detect.errors import ImirError
from imir_detect.report_json import COLUMNS
from imir_detect.strict import parse_json
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights
from imir_detect.weights.state import model_from_state_dict
from imir_detect.weights.store import parameters, read_card

FEW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SHARES = st.floats(0, 1)
TEXT = st.text(st.characters(), max_size=8)  # half a surrogate pair included
SCALARS = st.none() | st.booleans() | st.integers(-(10**15), 10**15) | NUMBERS | TEXT
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


# -- reports --------------------------------------------------------------------------------------


@st.composite
def circuits(draw: Any, layers: int, each: int) -> Circuit:
    every = [(layer, head) for layer in range(layers) for head in range(each)]
    heads = draw(st.lists(st.sampled_from(every), unique=True, max_size=4))
    ends = st.sampled_from(["embed", *heads])
    edges = [
        Edge(draw(ends), head, draw(st.sampled_from(["Q", "K", "V"])))
        for head in draw(st.lists(st.sampled_from(heads), max_size=3) if heads else st.just([]))
    ]
    edges += [Edge(head, "output", "out") for head in heads[:1]]
    roles = st.lists(st.tuples(st.sampled_from(heads), TEXT), max_size=2) if heads else st.just([])
    return Circuit(
        kind=draw(st.sampled_from(get_args(Kind))),
        heads=tuple(heads),
        edges=tuple(edges),
        effects=draw(st.dictionaries(TEXT, NUMBERS, max_size=3)),
        strength=draw(SHARES),
        coverage=Coverage(
            draw(SHARES),
            draw(st.sampled_from(["positions", "tokens"])),
            tuple(draw(st.lists(TEXT, max_size=2))),
        ),
        note=draw(TEXT),
        parts=tuple(draw(roles)),
        hops=draw(st.integers(1, 4)),
    )


@st.composite
def tables(draw: Any, name: str, rows: list[dict[str, Any]]) -> Table:
    """Rows of a report's table: what is given, numbers and words drawn for the rest."""
    columns = list(COLUMNS[name])
    words = {"unit", "path", "selection", "role"}

    def entry(row: dict[str, Any], column: str) -> Any:
        return row[column] if column in row else draw(TEXT if column in words else NUMBERS)

    return Table(columns, ([entry(row, column) for column in columns] for row in rows))


@st.composite
def reports(draw: Any) -> Report:
    layers, each = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    heads = [{"layer": i, "head": h} for i in range(layers) for h in range(each)]
    weights = [draw(st.integers(0, 1000)) for _ in range(4)]
    total = sum(weights) or 1
    chances = [w / total for w in weights] if any(weights) else [1.0, 0.0, 0.0, 0.0]
    return Report(
        probabilities=dict(zip(("icl", "iwl", "mixed", "none"), chances, strict=True)),
        circuits=tuple(draw(st.lists(circuits(layers, each), max_size=2))),
        heads=draw(tables("heads", heads)),
        coordinates=draw(tables("coordinates", [{"layer": None, "head": None}, heads[-1]])),
        profiles=draw(tables("profiles", [{**heads[0], "back": 2}])),
        measured=draw(st.dictionaries(TEXT.filter(lambda t: t != "ablation"), JSON, max_size=2)),
        limits=tuple(draw(st.lists(TEXT, max_size=2))),
        warnings=tuple(draw(st.lists(TEXT, max_size=2))),
        meta=draw(
            st.dictionaries(TEXT.filter(lambda t: t not in ("model", "relation")), JSON, max_size=2)
        ),
    )


@FEW
@given(reports())
def test_reports(report: Report) -> None:
    with folder() as home:
        assert Report.from_json(report.to_json(home / "report.json")) == report


@FEW
@given(st.lists(st.tuples(SCALARS, SCALARS), max_size=4))
def test_tables(rows: list[tuple[Any, Any]]) -> None:
    with folder() as home:
        path = Table(("a", "b"), rows).to_json(home / "table.json")
        assert parse_json(path.read_bytes()) == [{"a": a, "b": b} for a, b in rows]


def test_the_shipped_fit_comes_back_from_what_it_says() -> None:
    with folder() as home:
        (home / "fit.json").write_text(json.dumps(asdict(shipped_fit())))
        assert read_fit(home / "fit.json") == shipped_fit()


# -- models ---------------------------------------------------------------------------------------


@st.composite
def specs(draw: Any) -> ModelSpec:
    heads = draw(st.sampled_from([1, 2, 4]))
    rotary = draw(st.booleans())
    mlp = draw(st.sampled_from([0, 3]))
    return ModelSpec(
        d_vocab=draw(st.integers(2, 7)),
        n_ctx=draw(st.integers(2, 5)),
        n_layers=draw(st.integers(1, 3)),
        n_heads=heads,
        d_model=draw(st.sampled_from([4, 8])),
        d_head=draw(st.sampled_from([2, 4])),
        d_mlp=mlp,
        norm=draw(st.sampled_from([None, "LN", "RMS", "LNPre", "RMSPre"])),
        position="rotary" if rotary else "standard",
        rotary_dim=2 if rotary and draw(st.booleans()) else None,
        gated=mlp > 0 and draw(st.booleans()),
        act_fn=draw(st.sampled_from(["gelu_new", "relu", "silu"])),
        n_kv_heads=draw(st.sampled_from([None, 1, heads])),
        cap=draw(st.sampled_from([-1.0, 20.0])),
    )


@FEW
@given(specs(), st.integers(0, 1000), st.dictionaries(TEXT, JSON, max_size=3), st.booleans())
def test_saved_models_and_their_cards(
    spec: ModelSpec, seed: int, facts: dict[str, Any], half: bool
) -> None:
    model = spec.boot(seed=seed)
    model = model.half() if half else model
    facts = {f"own {name}": value for name, value in facts.items()}
    with folder() as home:
        loaded, card = load_model(save_model(model, spec, home, facts))
        assert {name: card[name] for name in facts} == facts
        assert ModelSpec(**card["spec"]) == spec
        assert read_card(home) == card
    own, theirs = parameters(model), parameters(loaded)
    assert set(own) == set(theirs)
    assert all(torch.equal(own[name].float(), theirs[name]) for name in own)


@FEW
@given(specs(), st.integers(0, 1000))
def test_state_dicts_give_the_same_weights(spec: ModelSpec, seed: int) -> None:
    model = spec.boot(seed=seed)
    again = model_from_state_dict(model.state_dict(), asdict(spec))
    try:
        expected = read_weights(model).hash()
    except ImirError:
        return  # a drawn model that is refused has no reading to compare
    assert read_weights(again).hash() == expected


# -- files of other tools -------------------------------------------------------------------------


@st.composite
def scored(draw: Any) -> tuple[int, int, torch.Tensor, frozenset[Edge]]:
    layers, heads = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    edges = all_edges(layers, heads)
    assert len(edges) == n_edges(layers, heads)
    seed = draw(st.integers(0, 1000))
    scores = torch.randn(
        len(edges), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    return layers, heads, scores, frozenset(draw(st.sets(st.sampled_from(edges))))


@FEW
@given(scored())
def test_exchange_formats(drawn: tuple[int, int, torch.Tensor, frozenset[Edge]]) -> None:
    layers, heads, scores, circuit = drawn

    def sent(value: Any) -> Any:
        return parse_json(json.dumps(value))

    got, kept = from_mib(sent(to_mib((layers, heads, 8), scores, circuit)))
    assert torch.equal(got, scores)
    assert kept == circuit
    modules = {k: v.tolist() for k, v in to_prune_scores(layers, heads, scores).items()}
    assert torch.equal(from_prune_scores(sent(modules)), scores)
    assert from_acdc(sent(to_acdc(layers, circuit, heads))) == circuit
