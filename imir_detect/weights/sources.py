"""A model by what a user types: a saved folder, a Hugging Face folder, a GGUF file, a hub name."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from imir_detect.errors import ImirError, UnreadableFileError
from imir_detect.weights.state import model_from_state_dict, read_tensors
from imir_detect.weights.store import CARD_FILE, load_model

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
    """
    path = Path(source)
    if (path / CARD_FILE).is_file():
        return load_model(path)[0]
    if path.suffix == ".gguf":
        return _from_gguf(path)
    if path.is_dir():
        config = _config(path / "config.json")
        if "model_type" in config or "architectures" in config:
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
        config = json.loads(path.read_text(encoding="utf-8"))
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
    from huggingface_hub.constants import ENDPOINT

    try:
        with socket.create_connection((urlsplit(ENDPOINT).hostname, 443), timeout=3):
            return True
    except OSError:
        return False


def _wrapped(name: str, **where: Any) -> Any:
    """A Hugging Face causal language model in a bridge, in float32, with its tokenizer."""
    try:
        import torch
        from transformer_lens import TransformerBridge
        from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, **where).eval()
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
