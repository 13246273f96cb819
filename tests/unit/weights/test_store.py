"""Saved models come back the same, every tensor once, and damaged files are refused in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from imir_detect.errors import (
    ImirError,
    InvalidArgumentError,
    UnknownNameError,
    UnreadableFileError,
)
from imir_detect.files import write_atomically
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import load_model, save_model
from imir_detect.zoo import shipped_model

SPEC = ModelSpec(9, 6, d_model=8, n_heads=2, norm="LN", d_mlp=6)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_model(SPEC.boot(seed=1), SPEC, tmp_path / "model", {"note": "mine"})


def test_a_saved_model_comes_back_the_same(saved: Path) -> None:
    model, card = load_model(saved)
    tokens = torch.arange(6)[None]
    with torch.no_grad():
        assert torch.equal(model(tokens), SPEC.boot(seed=1)(tokens))
    assert card["note"] == "mine"
    assert ModelSpec(**card["spec"]) == SPEC


def test_every_tensor_is_stored_once_under_a_plain_name(saved: Path) -> None:
    tensors = load_file(saved / "model.safetensors")
    assert "layers.0.attn.q.weight" in tensors
    assert len(tensors) == len(list(SPEC.boot(seed=1).parameters()))
    assert not any("original" in name for name in tensors)


def damage_card(folder: Path, **changes: Any) -> None:
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps({**card, **changes}))


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda f: (f / "card.json").unlink(), "no readable model card"),
        (lambda f: (f / "card.json").write_text("{"), "no readable model card"),
        (lambda f: damage_card(f, format=99), "another format; got 99"),
        (lambda f: (f / "model.safetensors").write_bytes(b"junk"), "not the file its card"),
        (lambda f: (f / "model.safetensors").unlink(), "unsafe or unreadable checkpoint"),
        (lambda f: damage_card(f, spec={"d_vocab": 9}), "spec.n_ctx is missing"),
        (
            lambda f: damage_card(
                f, spec={**json.loads((f / "card.json").read_text())["spec"], "n_layers": 10**6}
            ),
            r"asks for at least \d+ numbers, \d+ are there",
        ),
        (
            lambda f: damage_card(
                f,
                spec={
                    **json.loads((f / "card.json").read_text())["spec"],
                    "d_model": 4,
                    "d_head": 4,
                },
            ),
            "has shape",
        ),
    ],
)
def test_damaged_folders_are_refused(saved: Path, damage: Any, text: str) -> None:
    damage(saved)
    with pytest.raises(UnreadableFileError, match=text):
        load_model(saved)


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_specifications_that_cannot_be_built_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no such normalisation; got 'XX'"):
        ModelSpec(9, 6, norm="XX")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="heads do not divide"):
        ModelSpec(9, 6, d_model=10, n_heads=3)


def test_an_unknown_shipped_model_is_named() -> None:
    with pytest.raises(UnknownNameError, match="no such shipped model; got 'x'; wanted icl") as e:
        shipped_model("x")
    assert isinstance(e.value, ImirError)
