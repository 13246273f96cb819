"""A model by what a user types: a saved folder, a Hugging Face folder, a GGUF file, a hub name."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from imir_detect.arguments import shown
from imir_detect.errors import ImirError, InvalidArgumentError, UnreadableFileError, some
from imir_detect.strict import COUNT, read_json
from imir_detect.weights.state import model_from_state_dict, read_tensors
from imir_detect.weights.store import CARD_FILE, load_model

SIZES = {  # what Hugging Face configurations call them
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "width": ("hidden_size", "n_embd", "d_model", "dim"),
    "tokens": ("vocab_size",),
}
STATE_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".pkl", ".ckpt")


def open_model(source: str | Path, *, revision: str | None = None) -> Any:
    """A model that TransformerLens runs, from the first of these that `source` is:

    - a folder that `save_model` wrote (`card.json`);
    - a folder in Hugging Face's form (`config.json` with a model type);
    - a folder with `config.json` of a TransformerLens model and `model.safetensors`, or a file of
      tensors with a `config.json` beside it;
    - a GGUF file (with the extra `gguf`);
    - a name on the Hugging Face hub, where there is a network.

    `revision`: branch, tag or commit of a name on the hub.

    Nothing stored in a file is run. Raises UnreadableFileError in one line for anything else.

    >>> from imir_detect.zoo import shipped_folder
    >>> open_model(shipped_folder("icl")).cfg.n_layers
    2
    """
    if not isinstance(source, str | Path) or "\0" in str(source):
        raise InvalidArgumentError(
            "this names no model",
            got=shown(source),
            wanted="a path or a name",
            todo="pass a model itself to detect_circuits; open_model takes what a user types",
        )
    path = Path(source)
    try:
        saved = (path / CARD_FILE).is_file()
    except OSError as error:
        raise UnreadableFileError(
            "this names no file",
            got=f"{type(error).__name__}: {error.strerror}: {shown(source)}",
            wanted="a path or a name",
            todo="check the path",
        ) from error
    if saved:
        return load_model(path)[0]
    if path.suffix == ".gguf":
        return _from_gguf(path)
    if path.is_dir():
        config = _config(path / "config.json")
        if "model_type" in config or "architectures" in config:
            _check_claims(path, config)
            return _from_hub(str(path), local=True)
        return model_from_state_dict(read_tensors(path / "model.safetensors"), config)
    if path.suffix in STATE_SUFFIXES:
        tensors = read_tensors(path)
        return model_from_state_dict(tensors, _config(path.parent / "config.json"))
    if path.exists():
        raise UnreadableFileError(
            f"{path} is no model file",
            got=path.suffix or "no suffix",
            wanted=f".gguf or one of {', '.join(STATE_SUFFIXES)}",
            todo="give a model's folder or file",
        )
    return _from_hub(str(source), local=False, revision=revision)


def _config(path: Path) -> dict[str, Any]:
    try:
        config = read_json(path)
    except (OSError, ValueError) as error:
        raise UnreadableFileError(
            f"no readable configuration at {path}",
            got=f"{type(error).__name__}: {error}",
            wanted="a config.json that tells the number of heads and the other sizes",
            todo="save the model's configuration beside its weights",
        ) from error
    if not isinstance(config, dict):
        raise UnreadableFileError(
            f"the configuration at {path} is no mapping",
            got=type(config).__name__,
            wanted="names and values",
            todo="save the model's configuration again",
        )
    return config


def _check_claims(folder: Path, config: dict[str, Any]) -> None:
    """Refuse a configuration of more numbers than the folder's files can hold, before a model of
    that size is built: a layer has at least one number per dimension, and so has every token."""
    there = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    sizes = {
        name: max((config[key] for key in keys if COUNT.holds(config.get(key))), default=0)
        for name, keys in SIZES.items()
    }
    width = max(1, sizes["width"])
    claimed = width * max(sizes["layers"], sizes["tokens"] // 4)  # four-bit weights, tied
    if claimed > there:
        raise UnreadableFileError(
            f"the configuration in {folder} is not that of the weights beside it",
            got=f"{sizes['layers']} layers, {sizes['tokens']} tokens, width {sizes['width']}; "
            f"files of {there} bytes",
            wanted="weights of that size",
            todo="fetch the model again",
        )


def _from_gguf(path: Path) -> Any:
    """A GGUF file, dequantised to float32 by transformers."""
    if not path.is_file():
        raise UnreadableFileError(f"no file {path}", wanted="a GGUF file", todo="check the path")
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise UnreadableFileError(
            f"{path} needs a package that is not installed",
            got="no module gguf",
            wanted="the extra gguf",
            todo="pip install 'imir-detect[gguf]'",
        ) from error
    return _wrapped(str(path.parent), gguf_file=path.name)


def _from_hub(name: str, *, local: bool, revision: str | None = None) -> Any:
    where = {} if revision is None else {"revision": revision}
    return _wrapped(name, local_files_only=local or not hub_answers(), **where)


def hub_answers() -> bool:
    """Whether the hub can be reached at all; its client would try for half a minute."""
    from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE

    if HF_HUB_OFFLINE:
        return False
    try:
        with socket.create_connection((urlsplit(ENDPOINT).hostname, 443), timeout=3):
            return True
    except OSError:
        return False


def _refuse_fresh(name: str, loaded: dict[str, Any]) -> None:
    """Parameters that the files lack are drawn at random by the library, with no more than a
    warning; a report on them would be one on noise."""
    missing = sorted(map(str, loaded.get("missing_keys") or ()))
    if missing:
        raise UnreadableFileError(
            f"the files of {name!r} do not hold the whole model",
            got=f"nothing for {len(missing)} parameters: {some(missing)}",
            wanted="every parameter of the configuration beside them",
            todo="fetch the model again; the weights may be those of another model",
        )


def _wrapped(name: str, **where: Any) -> Any:
    """A Hugging Face causal language model in a bridge, in float32, with its tokenizer."""
    try:
        import torch
        from transformer_lens import TransformerBridge
        from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model, loaded = AutoModelForCausalLM.from_pretrained(
            name, dtype=torch.float32, output_loading_info=True, **where
        )
        model.eval()
        _refuse_fresh(name, loaded)
        # GGUF files name no class, and say that the weights are still quantised.
        model.config.architectures = [type(model).__name__]
        model.config.__dict__.pop("quantization_config", None)
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, **where)
        except Exception:  # token ids will do
            tokenizer = None
        if tokenizer is None:
            return build_bridge_from_module(
                model, architecture=type(model).__name__, hf_config=model.config
            )
        return TransformerBridge.boot_transformers(name, hf_model=model, tokenizer=tokenizer)
    except ImirError:
        raise
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise UnreadableFileError(
            f"no model {name!r} could be loaded",
            got=f"{type(error).__name__}: {first}",
            wanted="a saved model's folder, a Hugging Face folder, a GGUF file, or a name on the "
            "hub where there is a network",
            todo="check the name; without a network, download the folder first",
        ) from error
