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


def small() -> dict[str, Any]:
    return dict(random_model(SPEC).state_dict())


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (None, "got a NoneType; wanted names and tensors"),
        ([1], "got a list"),
        ({}, "got an empty mapping; wanted"),
        ({"a": 1}, r"got 'a': a int; .*pass model.state_dict\(\)"),
        ({"model": {"a": 1}, "step": 3}, r".*'step': a int; .*holds it inside: pass \['model'\]"),
        ({3: torch.zeros(1)}, "got 3 for a name"),
        ({"a": torch.eye(2).to_sparse(), "module.a": torch.eye(2).to_sparse()}, "got a twice"),
        ({"a": torch.zeros(1), "module.a": torch.ones(1)}, "got a twice, behind different prefix"),
    ],
)
def test_what_is_no_state_dict_is_refused(state: Any, text: str) -> None:
    with pytest.raises(InvalidWeightsError, match=f"this is no state dict; {text}"):
        model_from_state_dict(state, SPEC)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"n_heads": 0}, "no model has this n_heads; got n_heads=0; wanted a whole number above 0"),
        ({"n_heads": -2}, "got n_heads=-2"),
        ({"n_layers": 0}, "no model has this n_layers; got n_layers=0"),
        ({"d_model": "8"}, "no model has this d_model; got d_model='8'"),
        ({"d_mlp": 2.5}, "no model has this d_mlp; got d_mlp=2.5; wanted a whole number of 0"),
        ({"n_ctx": True}, "no model has this n_ctx; got n_ctx=True"),
        ({"rotary_base": -1.0}, "no model has this rotary_base; got .* wanted a number above 0"),
        ({"cap": float("nan")}, "no model has this cap; got cap=nan; wanted a finite number"),
        ({"n_kv_heads": 3}, "key/value heads do not divide the heads; got n_heads=2, n_kv_heads=3"),
        ({"position": "rotary", "d_head": 3}, "come in pairs within a head; got 3 of a head's 3"),
        ({"position": "rotary", "rotary_dim": 6}, "got 6 of a head's 4; wanted an even number, at"),
        (
            {"position": "rotary", "n_ctx": 10**6},
            "does not fit into memory; got n_ctx=1000000 in",
        ),
        ({"d_head": 10**6}, r"asks for at least \d+ numbers, \d+ are there"),
        ({"n_layers": 10**7}, r"asks for at least \d+ numbers, \d+ are there"),
        ({"eps": "small"}, "would not have; got eps='small'"),
        ({"attn_scale": "none"}, "would not have; got attn_scale='none'"),
        ({"attn_scale": float("nan")}, "would not have; got attn_scale=nan"),
    ],
)
def test_configurations_that_no_model_has(change: dict[str, Any], text: str) -> None:
    with pytest.raises((InvalidArgumentError, InvalidWeightsError), match=text):
        model_from_state_dict(small(), {**CONFIG, **change})


def test_a_configuration_tells_all_its_faults_and_the_state_dicts() -> None:
    from imir_detect import ImirError

    with pytest.raises(ImirError) as caught:
        model_from_state_dict({}, {**CONFIG, "n_heads": "2", "n_ctx": 0, "normalization_type": "X"})
    assert [problem.what for problem in caught.value.problems] == [
        "this is no state dict",
        "no model has this n_ctx",
        "no model has this n_heads",
        "no such normalisation",
    ]
    with pytest.raises(InvalidArgumentError, match="this is no configuration; got a str; wanted"):
        model_from_state_dict(small(), "gpt2")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda t: t.to(torch.int8), "tok_embed.weight is torch.int8, not a floating-point number"),
        (lambda t: t.to(torch.float8_e4m3fn), "tok_embed.weight is torch.float8_e4m3fn, not a"),
        (lambda t: t.to(torch.complex64), "tok_embed.weight is torch.complex64"),
        (lambda t: t.to_sparse(), "tok_embed.weight is torch.sparse_coo, not dense"),
        (lambda t: t.to("meta"), "tok_embed.weight is without data"),
        (lambda t: t[0, 0], r"tok_embed.weight has shape \(\), not \(9, 8\)"),
        (lambda t: t[:, :-1], r"tok_embed.weight has shape \(9, 7\), not \(9, 8\)"),
    ],
)
def test_tensors_that_are_no_weights_are_never_cast(change: Any, text: str) -> None:
    state = small()
    (name,) = [name for name in state if name.startswith(("embed.", "tok_embed."))]
    state[name] = change(state[name])
    with pytest.raises(InvalidWeightsError, match=f"does not fit its configuration; got .*{text}"):
        model_from_state_dict(state, SPEC)


def test_every_tensor_that_does_not_fit_is_named() -> None:
    state = {n.replace("pos_embed", "pos"): t for n, t in small().items()}
    state = {n.replace("ln_final", "ln_out"): t for n, t in state.items()}
    state["strange"] = torch.zeros(50)
    state["ln_out.weight"] = torch.zeros(9)
    del state["pos.weight"]
    with pytest.raises(InvalidWeightsError) as caught:
        model_from_state_dict(state, SPEC)
    for text in (
        "1 parameters are missing: pos.weight",
        "1 are unknown: strange",
        "ln_out.weight has shape (9,), not (8,)",
    ):
        assert text in str(caught.value)


@pytest.mark.parametrize("source", [None, 3, ["icl"], "a\0b"])
def test_what_names_no_model_is_refused(source: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"this names no model; got .*; wanted a path"):
        open_model(source)


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(UnreadableFileError, match="names no file; got OSError: File name too long"):
        open_model("x" * 300)


@pytest.fixture
def hub_folder(tmp_path: Path) -> Path:
    """A Hugging Face folder with a tiny GPT-2."""
    import transformers

    config = transformers.GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=32)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    return tmp_path


def test_a_hub_folder_without_all_its_weights_is_refused(hub_folder: Path) -> None:
    from safetensors.torch import load_file

    assert open_model(hub_folder).cfg.n_layers == 2
    tensors = load_file(hub_folder / "model.safetensors")
    tensors = {n: t for n, t in tensors.items() if ".h.1.attn.c_attn" not in n}
    save_file(tensors, hub_folder / "model.safetensors", {"format": "pt"})
    text = r"do not hold the whole model; got nothing for 2 parameters: .*h.1.attn.c_attn.bias"
    with pytest.raises(UnreadableFileError, match=text):
        open_model(hub_folder)


@pytest.mark.parametrize("change", [{"n_layer": 10**9}, {"vocab_size": 10**12}])
def test_a_hub_folder_that_claims_more_than_it_holds_is_refused(
    hub_folder: Path, change: dict[str, int]
) -> None:
    config = json.loads((hub_folder / "config.json").read_text())
    (hub_folder / "config.json").write_text(json.dumps({**config, **change}))
    text = r"is not that of the weights beside it; got \d+ layers, \d+ tokens, width 32; files of"
    with pytest.raises(UnreadableFileError, match=text):
        open_model(hub_folder)
