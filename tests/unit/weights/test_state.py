"""Bare state dicts and files: names stripped and converted, heads from the configuration only."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from imir_detect import model_from_state_dict, open_model, read_weights
from imir_detect.errors import InvalidArgumentError, InvalidWeightsError, UnreadableFileError
from imir_detect.weights.legacy import to_hooked
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.state import read_tensors
from imir_detect.weights.store import parameters

SPEC = ModelSpec(9, 6, d_model=8, n_heads=2, d_mlp=16, norm="LN")
CONFIG = {
    "d_vocab": 9,
    "n_ctx": 6,
    "n_layers": 2,
    "n_heads": 2,
    "d_model": 8,
    "d_mlp": 16,
    "normalization_type": "LN",
    "act_fn": "gelu_new",
}


def random_model(spec: ModelSpec) -> Any:
    model = spec.boot(seed=3)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize("prefix", ["", "_orig_mod.", "module.", "module._orig_mod."])
@pytest.mark.parametrize("config", [SPEC, CONFIG], ids=["spec", "mapping"])
def test_wrappers_prefixes_are_stripped(prefix: str, config: Any) -> None:
    model = random_model(SPEC)
    state = {prefix + name: tensor for name, tensor in model.state_dict().items()}
    assert read_weights(model_from_state_dict(state, config)).hash() == read_weights(model).hash()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm": "RMS", "d_mlp": 16, "gated": True, "act_fn": "silu"},
        {"position": "rotary", "n_kv_heads": 1},
    ],
    ids=str,
)
def test_legacy_names_are_converted(settings: dict[str, Any]) -> None:
    spec = ModelSpec(9, 6, d_model=8, n_heads=2, **settings)
    model = random_model(spec)
    legacy = to_hooked(parameters(model), 2, spec.n_kv_heads or 2)
    assert legacy["blocks.0.attn.W_Q"].shape == (2, 8, 4)
    legacy["unembed.b_U"] = torch.zeros(9)
    legacy["blocks.0.attn.mask"] = torch.ones(6, 6, dtype=torch.bool)
    assert read_weights(model_from_state_dict(legacy, spec)).hash() == read_weights(model).hash()


def test_a_legacy_query_matrix_by_hand() -> None:
    """A linear layer's weight is (out, in), heads one after the other; W_Q is (head, in, out)."""
    weight = torch.arange(8.0).reshape(4, 2)  # two heads of width 2, d_model 2
    legacy = to_hooked({"layers.0.attn.q.weight": weight}, 2, 2)["blocks.0.attn.W_Q"]
    assert legacy[1].tolist() == [[4.0, 6.0], [5.0, 7.0]]


def test_heads_are_never_guessed() -> None:
    state = random_model(SPEC).state_dict()
    without = {k: v for k, v in CONFIG.items() if k != "n_heads"}
    with pytest.raises(InvalidArgumentError, match="nothing for n_heads"):
        model_from_state_dict(state, without)
    legacy = to_hooked(parameters(random_model(SPEC)), 2, 2)
    with pytest.raises(InvalidWeightsError, match="has 2 heads, the configuration 4"):
        model_from_state_dict(legacy, {**CONFIG, "n_heads": 4})


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ({"use_attn_scale": False}, "use_attn_scale=False"),
        ({"attn_scale": 3.0}, "attn_scale=3.0"),
        ({"use_local_attn": True, "window_size": 4}, "use_local_attn=True, window_size=4"),
        ({"use_qk_norm": True}, "use_qk_norm=True"),
        ({"parallel_attn_mlp": True}, "parallel_attn_mlp=True"),
        ({"final_rms": True}, "final_rms=True"),
        ({"eps": 1e-3}, "eps=0.001"),
        ({"act_fn": None}, "act_fn=None"),
        (
            {"positional_embedding_type": "rotary", "rotary_adjacent_pairs": False},
            "rotary_adjacent_pairs=False",
        ),
        ({"attention_dir": "bidirectional"}, "attention_dir='bidirectional'"),
    ],
    ids=str,
)
def test_settings_that_would_be_dropped_are_refused_by_name(
    setting: dict[str, Any], name: str
) -> None:
    """The tensors alone would load, and compute something else."""
    with pytest.raises(InvalidArgumentError, match=re.escape(f"got {name}")):
        model_from_state_dict(random_model(SPEC).state_dict(), {**CONFIG, **setting})


@pytest.mark.parametrize("kind", ["shortformer", "alibi"])
def test_positions_that_cannot_be_built_are_refused(kind: str) -> None:
    state = random_model(SPEC).state_dict()
    with pytest.raises(InvalidArgumentError, match=f"no such positions; got '{kind}'"):
        model_from_state_dict(state, {**CONFIG, "positional_embedding_type": kind})


def test_a_models_own_configuration_is_taken() -> None:
    """Everything that a native configuration holds at its defaults is no reason to refuse."""
    for spec in (SPEC, ModelSpec(9, 6, d_model=8, n_heads=2, position="rotary", norm="RMS")):
        model = random_model(spec)
        config = {**vars(model.cfg)}
        again = model_from_state_dict(model.state_dict(), config)
        assert read_weights(again).hash() == read_weights(model).hash()


def test_names_that_do_not_fit_are_listed() -> None:
    with pytest.raises(InvalidWeightsError, match=r"keys begin with transformer.wte.weight"):
        model_from_state_dict({"transformer.wte.weight": torch.zeros(9, 8)}, CONFIG)
    state = dict(random_model(SPEC).state_dict())
    state["unembed.bias"] = torch.arange(9.0)
    with pytest.raises(InvalidWeightsError, match=r"head\.bias"):
        model_from_state_dict(state, CONFIG)


def test_folders_and_files_open(tmp_path: Path) -> None:
    model = random_model(SPEC)
    expected = read_weights(model).hash()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    torch.save(state, tmp_path / "other.pt")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for source in (tmp_path, tmp_path / "model.safetensors", tmp_path / "other.pt"):
        assert read_weights(open_model(source)).hash() == expected


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.flag),)


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    torch.save({"a": Evil(flag)}, tmp_path / "evil.pth")
    with pytest.raises(UnreadableFileError, match=r"unsafe or unreadable checkpoint .*evil.pth"):
        read_tensors(tmp_path / "evil.pth")
    assert not flag.exists()


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors", "a.pkl"])
@pytest.mark.parametrize(
    "data", [b"", b"some text", b"PK\x03\x04 cut off"], ids=["0", "text", "zip"]
)
def test_broken_files_get_one_line(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UnreadableFileError, match="unsafe or unreadable checkpoint"):
        read_tensors(tmp_path / name)


def test_a_file_of_something_else_than_tensors_is_refused(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(UnreadableFileError, match="no mapping from names to tensors"):
        read_tensors(tmp_path / "list.pt")


def test_other_sources_get_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="no readable configuration"):
        open_model(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(UnreadableFileError, match="is no mapping; got list"):
        open_model(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UnreadableFileError, match=r"notes.txt is no model file"):
        open_model(tmp_path / "notes.txt")
    with pytest.raises(UnreadableFileError, match="no file"):
        open_model(tmp_path / "absent.gguf")


def test_a_hugging_face_folder_opens(tmp_path: Path) -> None:
    import families

    model = families.wrapped("LlamaForCausalLM")
    expected = read_weights(model)
    import transformers

    config_name, settings = families.CONFIGS["LlamaForCausalLM"]
    inner = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
    with torch.no_grad():
        for parameter in inner.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    inner.save_pretrained(tmp_path)
    read = read_weights(open_model(tmp_path))
    assert config_name == "LlamaConfig"
    assert read.W_Q.shape == expected.W_Q.shape
    assert torch.equal(read.W_E.float(), inner.model.embed_tokens.weight)
