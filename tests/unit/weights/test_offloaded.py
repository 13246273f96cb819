"""Models spread by `device_map`: offloaded parameters are fetched, read and put away again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import families
import pytest
import torch

from imir_detect import read_weights
from imir_detect.behaviour import repeated_attention
from imir_detect.errors import InvalidWeightsError
from imir_detect.weights.offloaded import (
    bare_copy,
    current,
    entry_device,
    fetcher,
    in_memory,
    stored_parameters,
)
from imir_detect.weights.run import quietly, run_residuals

STORED = torch.arange(6.0).view(2, 3)


class Hook:
    """What accelerate's hook of an offloaded module does, as far as it is used here."""

    def __init__(self, stored: dict[str, torch.Tensor], place: str | None = None) -> None:
        self.offload, self.weights_map, self.execution_device = True, stored, place

    def pre_forward(self, module: torch.nn.Module) -> None:
        for name, value in self.weights_map.items():
            module._parameters[name] = torch.nn.Parameter(value)

    def post_forward(self, module: torch.nn.Module, output: Any) -> Any:
        for name, value in self.weights_map.items():
            module._parameters[name] = torch.nn.Parameter(value.to("meta"))
        return output


def offloaded(place: str | None = None) -> torch.nn.Module:
    module = torch.nn.Linear(3, 2, bias=False, device="meta")
    module._hf_hook = Hook({"weight": STORED}, place)
    return module


class Pair(torch.nn.Module):
    """A module on `meta` that was registered before the one where tokens enter."""

    def __init__(self, embed: torch.nn.Module) -> None:
        super().__init__()
        self.first, self.embed = torch.nn.Linear(2, 2, device="meta"), embed


# -- by hand ---------------------------------------------------------------------------------------


def test_parameters_are_in_memory_inside_and_put_away_again_after() -> None:
    part = offloaded()
    with in_memory(None, torch.nn.Sequential(part), part):
        assert torch.equal(part.weight, STORED)
    assert part.weight.is_meta
    with pytest.raises(RuntimeError, match="stop"), in_memory(part):
        raise RuntimeError("stop")
    assert part.weight.is_meta


def test_only_a_hook_that_has_the_parameters_fetches_them() -> None:
    hook = Hook({"weight": STORED})
    several = torch.nn.Linear(3, 2)
    several._hf_hook = type("Sequence", (), {"hooks": (object(), hook)})()
    assert fetcher(several) is hook
    placing = torch.nn.Linear(3, 2)
    placing._hf_hook = type("Placing", (), {"offload": False, "weights_map": None})()
    assert fetcher(placing) is None
    assert fetcher(torch.nn.Linear(3, 2)) is None


def test_stored_parameters_are_those_of_the_hooks() -> None:
    both = torch.nn.Sequential(offloaded(), torch.nn.Linear(2, 2, device="meta"))
    found = dict(stored_parameters(both))
    assert torch.equal(found["0.weight"], STORED)
    assert both[0].weight.is_meta  # looked at, not put in place
    assert found["1.weight"].is_meta


def test_tokens_enter_where_the_embedding_is_or_is_fetched_to() -> None:
    assert entry_device(Pair(torch.nn.Embedding(5, 2))).type == "cpu"
    assert entry_device(Pair(offloaded("cpu"))).type == "cpu"
    assert entry_device(Pair(offloaded())).type == "meta"  # its hook says nothing
    with quietly(Pair(torch.nn.Embedding(5, 2))) as device:
        assert device.type == "cpu"


def test_a_second_name_of_a_parameter_is_followed_anew() -> None:
    part = torch.nn.Sequential(offloaded())
    part.property_aliases = {"W": "0.weight", "b": "1.bias"}
    part.W, part.b = part[0].weight.detach(), STORED
    with in_memory(part):
        assert torch.equal(current(part, "W"), STORED)
    assert current(part, "b") is STORED  # in memory: as it is
    with pytest.raises(AttributeError):
        current(part, "c")


def test_a_bare_copy_has_the_modules_own_forward_and_no_hook() -> None:
    part = offloaded()
    part.forward = lambda x: pytest.fail("the hook's forward was called")
    with in_memory(part):
        copied = bare_copy(part)
    assert torch.equal(copied(torch.ones(1, 3)), STORED.sum(1)[None])
    assert not hasattr(copied, "_hf_hook")
    assert hasattr(part, "_hf_hook")


def test_empty_parameters_that_nothing_fetches_are_named_beside_fetched_ones() -> None:
    model = families.wrapped("LlamaForCausalLM")
    norm = model.original_model.model.norm._original_component
    kept = norm.weight.detach()
    norm.weight = torch.nn.Parameter(kept.to("meta"))
    text = (
        r"parameters without data; got model.norm.weight: on the meta device; wanted weights in "
        r"memory, or offloaded by accelerate, .*; next step: load the checkpoint"
    )
    with pytest.raises(InvalidWeightsError, match=text):
        read_weights(model)


# -- by accelerate ---------------------------------------------------------------------------------


def spread(name: str, folder: Path) -> tuple[Any, Any]:
    """A tiny model in a bridge, and the same with its second layer on disk."""
    pytest.importorskip("accelerate")
    import transformers
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    kind = getattr(transformers, name)
    families.unwrapped(name).save_pretrained(folder / "model")
    model = kind.from_pretrained(
        folder / "model",
        device_map=places(families.unwrapped(name)),
        offload_folder=folder / "offloaded",
        attn_implementation="eager",
    )
    spread = build_bridge_from_module(model.eval(), architecture=name, hf_config=model.config)
    return families.wrapped(name), spread


def places(model: torch.nn.Module, prefix: str = "") -> dict[str, str]:
    """A device map: layers but the first on disk, everything else on the CPU."""
    found: dict[str, str] = {}
    for name, part in model.named_children():
        if isinstance(part, torch.nn.ModuleList):
            found |= {f"{prefix}{name}.{i}": "disk" if i else "cpu" for i in range(len(part))}
        elif any(isinstance(inner, torch.nn.ModuleList) for inner in part.modules()):
            found |= places(part, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = "cpu"
    return found


@pytest.mark.parametrize(
    "name", ["GPT2LMHeadModel", "LlamaForCausalLM", "Gemma2ForCausalLM", "GPTNeoXForCausalLM"]
)
def test_a_model_with_layers_on_disk_reads_as_in_memory(name: str, tmp_path: Path) -> None:
    whole, parted = spread(name, tmp_path)
    empty = [n for n, p in parted.original_model.named_parameters() if p.is_meta]
    assert empty  # the second layer's
    assert read_weights(parted).hash() == read_weights(whole).hash()
    assert [n for n, p in parted.original_model.named_parameters() if p.is_meta] == empty


def test_a_model_with_layers_on_disk_runs_as_in_memory(tmp_path: Path) -> None:
    whole, parted = spread("LlamaForCausalLM", tmp_path)
    weights = read_weights(whole)
    tokens = torch.arange(12).view(2, 6)
    residuals = [run_residuals(model, weights, tokens) for model in (whole, parted)]
    assert len(residuals[0]) == 3
    assert all(map(torch.equal, *residuals))
    assert repeated_attention(parted, period=6).rows == repeated_attention(whole, period=6).rows
    # A run that ended behind the last layer has left nothing in memory, either.
    second = parted.original_model.model.layers[1]
    assert all(parameter.is_meta for parameter in second.parameters())


def test_faults_of_offloaded_parameters_are_told(tmp_path: Path) -> None:
    _, parted = spread("LlamaForCausalLM", tmp_path)
    for module in parted.original_model.modules():
        hook = fetcher(module)
        if hook is not None and "weight" in dict(module.named_parameters(recurse=False)):
            hook.weights_map = {"weight": torch.full((2, 2), float("nan"))}
            break
    with pytest.raises(InvalidWeightsError, match=r"not finite; got [a-z0-9_.]+: 4 of 4 entries"):
        read_weights(parted)
