"""How sure a report is, what it did not search, and R in the model's own words."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from imir_detect import read_weights
from imir_detect.circuits.deep_feeders import searched
from imir_detect.circuits.patterns import Patterns
from imir_detect.coordinates.pathsum import Edge
from imir_detect.notes import spelled
from imir_detect.report.page import report_page


@dataclass(frozen=True)
class Hand:
    attention: tuple[torch.Tensor, ...]


def test_standard_errors_are_over_contexts() -> None:
    """Two contexts of two periods of three, one head: at queries 4 and 5 it gives 0.2 in one
    context and 0.6 in the other to what follows the earlier copy (2 back), nothing elsewhere."""
    attention = torch.zeros(2, 1, 6, 6, dtype=torch.float64)
    for context, share in enumerate((0.2, 0.6)):
        for query in (4, 5):
            attention[context, 0, query, query - 2] = share
    patterns = Patterns(Hand((attention,)), Hand((attention,)), 3)
    assert patterns.behind_copy((0, 0), 1) == pytest.approx(0.4)
    # Standard deviation 0.2 sqrt(2) over the root of 2.
    assert patterns.errors((0, 0)) == pytest.approx((0.0, 0.0, 0.2))


def test_every_report_has_them_in_the_order_of_its_heads(shipped: dict[str, Any]) -> None:
    _, report = shipped["icl"]
    errors = report.meta["standard_errors"]
    assert set(errors) == {"previous_token", "duplicate_token", "induction"}
    assert all(len(column) == len(report.heads) for column in errors.values())
    assert 0 < max(errors["induction"]) < 0.05
    assert "standard errors" in report_page(report)
    assert f"up to {max(errors['induction']):.3f}" in report_page(report)


def test_what_named_feeders_bring_and_what_others_could() -> None:
    nats = {(0, 0): 6.0, (0, 1): 3.5, (0, 2): 0.5, (0, 3): -2.0}
    terms = {(1, 0): {Edge(head, (1, 0), "K"): value for head, value in nats.items()}}
    assert searched(terms) == (0.95, 0.5)
    assert searched({(0, 0): {}}) == (0.0, 0.0)


def test_pairs_are_spelled_where_there_is_a_tokenizer(shipped: dict[str, Any]) -> None:
    words = [" tea", " cup", "\n"]
    model = SimpleNamespace(tokenizer=SimpleNamespace(decode=lambda ids: words[ids[0]]))
    assert spelled(model, [(0, 1), (2, 0)]) == [[" tea", " cup"], ["\n", " tea"]]
    bare, report = shipped["iwl"]
    assert spelled(read_weights(bare), [(0, 1)]) == []
    assert report.meta["relation"]["spelled"] == []
    relation = report.meta["relation"] | {"spelled": [[" tea", " cup"], ["\n", " tea"]]}
    told = replace(report, meta=report.meta | {"relation": relation})
    assert r"strongest pairs of R: ' tea' -> ' cup', '\n' -> ' tea'" in str(told)
    assert "&#39; tea&#39;&rarr;&#39; cup&#39;" in report_page(told).replace("→", "&rarr;")
