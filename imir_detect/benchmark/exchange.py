"""Scores and cases in the files of other tools, read and written.

- `Graph` JSON of EAP-IG and the MIB benchmark: nodes "input", "a0.h1", "logits", edges
  "input->a0.h1<q>", each with a score and whether it is in the graph.
- auto-circuit's prune scores: {"blocks.1.hook_k_input": (head, source), ..}, the output's under
  "blocks.LAST.hook_resid_post" (source,). Kept as JSON or safetensors, never as a pickle.
- ACDC's edge lists: [receiver, index, sender, index, present] with hook names and [null, null, h].
- A whole case for tools that need a `HookedTransformer`: state dict and configuration, prompts, and
  the reference graph.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.arguments import shown
from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.graph import all_edges, n_edges
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, Edge, Node
from imir_detect.errors import InvalidArgumentError, UnreadableFileError, UnsupportedModelError
from imir_detect.files import write_atomically
from imir_detect.strict import COUNT, FLAG, NUMBER, POSITIVE, check_shape, json_text
from imir_detect.weights.attention import Attention

PORT = {"Q": "q", "K": "k", "V": "v"}


# -- EAP-IG / MIB ---------------------------------------------------------------------------------


def _mib_node(node: Node) -> str:
    if isinstance(node, str):
        return {"embed": "input", "output": "logits"}[node]
    return f"a{node[0]}.h{node[1]}"


def mib_edge(edge: Edge) -> str:
    """An edge's name in EAP-IG and MIB.

    >>> mib_edge(Edge("embed", (0, 1), "Q")), mib_edge(Edge((0, 1), "output", "out"))
    ('input->a0.h1<q>', 'a0.h1->logits')
    """
    port = "" if edge.port == "out" else f"<{PORT[edge.port]}>"
    return f"{_mib_node(edge.source)}->{_mib_node(edge.target)}{port}"


def to_mib(
    shape: tuple[int, int, int],
    scores: Float[Tensor, " edge"],
    circuit: Collection[Edge] = (),
) -> dict[str, Any]:
    """The `Graph` JSON of scores. `shape`: layers, heads, d_model; `circuit`: what is in it."""
    layers, heads, width = shape
    edges = all_edges(layers, heads)
    used = {end for edge in circuit for end in (edge.source, edge.target)} | {EMBED, OUTPUT}
    nodes: list[Node] = [EMBED, *((i, h) for i in range(layers) for h in range(heads)), OUTPUT]
    return {
        "cfg": {
            "n_layers": layers,
            "n_heads": heads,
            "parallel_attn_mlp": False,
            "d_model": width,
        },
        "nodes": {_mib_node(node): {"in_graph": node in used} for node in nodes},
        "edges": {
            mib_edge(edge): {"score": float(score), "in_graph": edge in circuit}
            for edge, score in zip(edges, scores, strict=True)
        },
    }


def from_mib(graph: Mapping[str, Any]) -> tuple[Tensor, frozenset[Edge]]:
    """Scores in the order of `all_edges`, and the edges in the graph. Edges of MLPs are left out
    (attention-only models have none that matter); a missing edge is an error."""
    try:
        check_shape(graph, {"cfg": {"n_layers": POSITIVE, "n_heads": POSITIVE}, "edges": {}})
        layers, heads, found = graph["cfg"]["n_layers"], graph["cfg"]["n_heads"], graph["edges"]
        if n_edges(layers, heads) > len(found):
            raise ValueError(f"{n_edges(layers, heads)} edges of heads, {len(found)} are there")
        edges = all_edges(layers, heads)
        names = [mib_edge(edge) for edge in edges]
        check_shape(found, {name: {"score": NUMBER, "in_graph": FLAG} for name in names}, "edges")
        rows = [found[name] for name in names]
        scores = torch.tensor([row["score"] for row in rows], dtype=torch.float64)
        kept = frozenset(e for e, row in zip(edges, rows, strict=True) if row["in_graph"])
    except (TypeError, ValueError) as error:
        raise UnreadableFileError(
            "this is no Graph of EAP-IG or MIB for an attention-only model",
            got=f"{type(error).__name__}: {error}",
            wanted="cfg with n_layers and n_heads, and edges such as 'input->a0.h0<q>'",
            todo="write it with Graph.to_json",
        ) from error
    return scores, kept


# -- auto-circuit ---------------------------------------------------------------------------------


def to_prune_scores(
    n_layers: int, n_heads: int, scores: Float[Tensor, " edge"]
) -> dict[str, Tensor]:
    """Scores as auto-circuit holds them: a matrix for each module that reads."""
    found, start = {}, 0
    for layer in range(n_layers):
        sources = 1 + layer * n_heads
        size = n_heads * 3 * sources
        block = scores[start : start + size].view(n_heads, 3, sources)
        for column, port in enumerate("qkv"):
            found[f"blocks.{layer}.hook_{port}_input"] = block[:, column].clone()
        start += size
    found[f"blocks.{n_layers - 1}.hook_resid_post"] = scores[start:].clone()
    return found


def from_prune_scores(modules: Mapping[str, Any]) -> Float[Tensor, edge]:
    """Scores in the order of `all_edges` from auto-circuit's (tensors or nested lists), whatever
    the order of the modules. Signs are kept: rank by absolute value, as auto-circuit does."""
    try:
        tensors = {name: _doubles(value) for name, value in modules.items()}
        n_layers = sum(name.endswith("hook_q_input") for name in tensors)
        blocks = [
            torch.stack([tensors[f"blocks.{layer}.hook_{port}_input"] for port in "qkv"], 1)
            for layer in range(n_layers)
        ]
        last = tensors[f"blocks.{n_layers - 1}.hook_resid_post"]
        found = torch.cat([*(block.flatten() for block in blocks), last.flatten()])
        heads = blocks[0].shape[0]
        if len(found) != n_edges(n_layers, heads):
            raise ValueError(f"{len(found)} scores, not {n_edges(n_layers, heads)}")
        if not bool(torch.isfinite(found).all()):
            raise ValueError("scores that are not finite")
    except (LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise UnreadableFileError(
            "these are no prune scores of an attention-only model",
            got=f"{type(error).__name__}: {error}",
            wanted="separate_qkv scores: blocks.N.hook_q_input (head, source) and so on",
            todo="make the model patchable with factorized=True, separate_qkv=True",
        ) from error
    return found


def _doubles(value: Any) -> Tensor:
    return value.double() if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)


# -- ACDC -----------------------------------------------------------------------------------------


def to_acdc(n_layers: int, circuit: Collection[Edge], n_heads: int) -> list[list[Any]]:
    """Every edge as [receiver, index, sender, index, present]."""

    def sender(node: Node) -> list[Any]:
        if isinstance(node, str):
            return ["blocks.0.hook_resid_pre", [None]]
        return [f"blocks.{node[0]}.attn.hook_result", [None, None, node[1]]]

    def receiver(edge: Edge) -> list[Any]:
        if isinstance(edge.target, str):
            return [f"blocks.{n_layers - 1}.hook_resid_post", [None]]
        layer, head = edge.target
        return [f"blocks.{layer}.hook_{PORT[edge.port]}_input", [None, None, head]]

    edges = all_edges(n_layers, n_heads)
    return [[*receiver(edge), *sender(edge.source), edge in circuit] for edge in edges]


READER = re.compile(r"blocks\.(\d{1,6})\.hook_([qkv])_input")
LAST = re.compile(r"blocks\.\d{1,6}\.hook_resid_post")
SENDER = re.compile(r"blocks\.(\d{1,6})\.attn\.hook_result")
INSIDE = re.compile(r"blocks\.(\d{1,6})\.attn\.hook_(?:[qkv]|result)")  # steps within one head


def from_acdc(rows: Sequence[Sequence[Any]]) -> frozenset[Edge]:
    """The edges that are present. ACDC's edges within a head are left out: they say nothing more.

    Raises UnreadableFileError for a row that is no edge between heads, embedding and output.
    """
    found = set()
    for row in rows if isinstance(rows, Sequence) else [rows]:
        try:
            reader, index, sender, place, present = row
            edge = _acdc_edge(reader, index, sender, place)
        except (ValueError, IndexError, TypeError) as error:
            raise UnreadableFileError(
                "this is no ACDC edge",
                got=shown(row),
                wanted="[receiver, index, sender, index, present] with hook names",
                todo="write the list with to_acdc, or as ACDC names its hooks",
            ) from error
        if present and edge is not None:
            found.add(edge)
    return frozenset(found)


def _acdc_edge(reader: str, index: Any, sender: str, place: Any) -> Edge | None:
    """The edge, or None for one within a head. Raises ValueError for anything else."""
    head, wrote = READER.fullmatch(reader), SENDER.fullmatch(sender)
    if INSIDE.fullmatch(reader) and (INSIDE.fullmatch(sender) or READER.fullmatch(sender)):
        return None
    if wrote is None and sender != "blocks.0.hook_resid_pre":
        raise ValueError("no sender")
    source: Node = EMBED if wrote is None else (int(wrote[1]), _head(place))
    if LAST.fullmatch(reader):
        return Edge(source, OUTPUT, "out")
    if head is None:
        raise ValueError("no reader")
    port: Any = head[2].upper()
    return Edge(source, (int(head[1]), _head(index)), port)


def _head(index: Any) -> int:
    if not isinstance(index, Sequence) or not COUNT.holds(index[2]):
        raise ValueError("no head")
    return index[2]


# -- whole cases ----------------------------------------------------------------------------------


def hooked_state(case: Case) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Configuration and state dict of a `HookedTransformer` with the case's folded weights: norms
    have no gains left ("RMSPre"; LayerNorm's centring is in the weights), value biases are in b_O.
    """
    w = case.weights
    if any(kind != Attention() for kind in w.attention) or len({*w.scale.tolist()}) > 1:
        raise UnsupportedModelError(
            "this case's attention has no place in the exported configuration",
            got="rotary or other positions, caps, windows, or scales that differ",
            wanted="learned positions and one scale",
            todo="export cases with plain attention",
        )
    config = {
        "n_layers": w.n_layers,
        "n_heads": w.n_heads,
        "d_model": w.d_model,
        "d_head": w.d_head,
        "n_ctx": w.n_ctx,
        "d_vocab": w.vocab_size,
        "attn_only": True,
        "normalization_type": "RMSPre" if w.rms else None,
        "eps": w.eps,
        "use_attn_scale": True,
        "attn_scale": float(w.scale[0]),
        "positional_embedding_type": "standard",
        "init_weights": False,
    }
    state = {"embed.W_E": w.W_E, "pos_embed.W_pos": w.W_pos, "unembed.W_U": w.W_U}
    state["unembed.b_U"] = w.b_U
    for layer in range(w.n_layers):
        stem = f"blocks.{layer}.attn"
        state |= {f"{stem}.W_{x}": getattr(w, f"W_{x}")[layer] for x in "QKVO"}
        state |= {f"{stem}.b_{x}": getattr(w, f"b_{x}")[layer] for x in "QKO"}
        state[f"{stem}.b_V"] = torch.zeros_like(w.b_K[layer])
    return config, {name: tensor.float().contiguous() for name, tensor in state.items()}


def export_case(case: Case, folder: Path, *, samples: int = 64, seed: int = 0) -> Path:
    """Write model.safetensors, config.json, prompts.json and graph.json (the truth) to a folder."""
    from safetensors.torch import save

    if case.labels is None or case.granularity != "edge":
        raise InvalidArgumentError(
            "a case is exported with its truth about edges",
            got=f"labels {case.labels is not None}, granularity {case.granularity!r}",
            wanted="a case of granularity 'edge' as the runner makes it",
            todo="make the case with make_case('MODEL/ABLATION/edge', folder)",
        )
    config, state = hooked_state(case)
    prompts = case.prompts(samples, seed=seed)
    w = case.weights
    right = torch.tensor([float(edge in case.labels.positive) for edge in case.edges])
    circuit = frozenset(edge for edge in case.edges if edge in case.labels.positive)
    files: dict[str, Any] = {
        "config.json": config,
        "prompts.json": {
            "ablation": case.ablation,
            "clean": prompts.tokens.tolist(),
            "corrupt": prompts.corrupt.tolist(),
            "position": prompts.query.tolist(),
            "answers": prompts.answer.tolist(),
            "wrong_answers": prompts.wrong.tolist(),
        },
        "graph.json": to_mib((w.n_layers, w.n_heads, w.d_model), right, circuit),
    }
    for name, value in files.items():
        write_atomically(folder / name, json_text(value).encode())
    write_atomically(folder / "model.safetensors", save(state))
    return folder
