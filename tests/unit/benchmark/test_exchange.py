"""Files of other tools, read and written."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_against_auto_circuit import DATA, EDGES, wanted

from imir_detect.benchmark.exchange import (
    export_case,
    from_acdc,
    from_mib,
    from_prune_scores,
    to_acdc,
    to_mib,
    to_prune_scores,
)
from imir_detect.benchmark.suites import make_case
from imir_detect.errors import InvalidArgumentError, UnreadableFileError
from imir_detect.weights.run import run_logits
from imir_detect.weights.state import model_from_state_dict

SCORES = torch.arange(len(EDGES), dtype=torch.float64) - 7
CIRCUIT = frozenset(EDGES[::3])


def test_graph_json_comes_back_as_it_went() -> None:
    graph = json.loads(json.dumps(to_mib((2, 2, 8), SCORES, CIRCUIT)))
    scores, circuit = from_mib(graph)
    assert torch.equal(scores, SCORES)
    assert circuit == CIRCUIT
    assert graph["edges"]["a0.h1->a1.h0<k>"]["score"] == float(
        SCORES[EDGES.index(((0, 1), (1, 0), "K"))]
    )
    assert set(graph["nodes"]) == {"input", "a0.h0", "a0.h1", "a1.h0", "a1.h1", "logits"}


def test_prune_scores_of_auto_circuit_are_read_in_any_order() -> None:
    stored = json.loads((DATA / "auto_circuit_plain.json").read_text(encoding="utf-8"))
    modules = dict(sorted(stored["eap_prune_scores"].items(), reverse=True))
    assert torch.allclose(from_prune_scores(modules), wanted(stored["eap"]).double())
    assert torch.equal(from_prune_scores(to_prune_scores(2, 2, SCORES)), SCORES)


def test_edge_lists_of_acdc_come_back() -> None:
    rows = json.loads(json.dumps(to_acdc(2, CIRCUIT, 2)))
    assert len(rows) == len(EDGES)
    assert from_acdc(rows) == CIRCUIT


@pytest.mark.parametrize(
    ("read", "value", "text"),
    [
        (from_mib, {"cfg": {"n_layers": 1, "n_heads": 1}, "edges": {}}, "no Graph of EAP-IG"),
        (from_prune_scores, {"blocks.0.hook_q_input": [[1.0]]}, "no prune scores"),
        (from_acdc, [["blocks.0.hook_q_input", [None], "x", [], True]], "no ACDC edge"),
    ],
)
def test_other_files_are_refused(read: Any, value: Any, text: str) -> None:
    with pytest.raises(UnreadableFileError, match=text):
        read(value)


@pytest.mark.parametrize("name", ["induction-clean", "suppression-layernorm"])
def test_an_exported_case_is_the_same_model_with_the_same_truth(name: str, tmp_path: Path) -> None:
    case = make_case(f"{name}/mean/edge", tmp_path)
    folder = export_case(case, tmp_path / "out", samples=8)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    prompts = json.loads((folder / "prompts.json").read_text(encoding="utf-8"))
    model = model_from_state_dict(load_file(folder / "model.safetensors"), config)
    tokens = torch.tensor(prompts["clean"])
    own, theirs = run_logits(case.model, tokens), run_logits(model, tokens)
    centred = own - own.mean(-1, keepdim=True)
    assert torch.allclose(theirs - theirs.mean(-1, keepdim=True), centred, atol=1e-4)
    graph = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
    assert case.labels is not None
    assert from_mib(graph)[1] == case.labels.positive
    assert prompts["ablation"] == "mean"


def test_a_case_without_its_truth_is_not_exported(tmp_path: Path) -> None:
    case = make_case("previous/zero/edge", tmp_path)
    with pytest.raises(InvalidArgumentError, match="exported with its truth"):
        export_case(case.blind(), tmp_path / "out")
