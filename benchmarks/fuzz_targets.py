"""The doors of the product that `fuzz.py` knocks at: each kind makes one input and puts it in.

A kind is (weight, make); `make(home)` prepares what its inputs are bent from and gives a function
that puts one input, drawn from a `random.Random`, into the product.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import fuzz_inputs as hostile
import torch
from safetensors.torch import load

Target = Callable[[Random], None]


# -- files ----------------------------------------------------------------------------------------


def reports(home: Path) -> Target:
    """A report, read, printed, drawn as a page and compared."""
    from imir_detect import Report, compare, detect_circuits, shipped_model
    from imir_detect.report.page import report_page

    good = detect_circuits(shipped_model("icl"))
    document = json.loads(good.to_json(home / "good.json").read_text())
    document["coordinates"]["rows"] = document["coordinates"]["rows"][:3]
    document["profiles"]["rows"] = document["profiles"]["rows"][:2]

    def put(rng: Random) -> None:
        (home / "report.json").write_bytes(hostile.json_bytes(document, rng))
        report = Report.from_json(home / "report.json")
        str(report), report._repr_html_(), report_page(report, name=rng.choice(hostile.TEXTS))
        both = compare({"a": report, "b": good})
        str(both), both.summary(), both.to_html(home / "both.html")
        assert Report.from_json(report.to_json(home / "again.json")) == report

    return put


def cards(home: Path) -> Target:
    """A saved model whose card or weights are bent, loaded; its label listed."""
    from imir_detect.weights.store import load_model, read_card
    from imir_detect.zoo import shipped_folder
    from imir_detect.zoo.cards import task_of

    folder = home / "model"
    folder.mkdir()
    data = (shipped_folder("one-layer-none-recall-5a") / "model.safetensors").read_bytes()
    card = json.loads((shipped_folder("one-layer-none-recall-5a") / "card.json").read_text())

    def put(rng: Random) -> None:
        weights = hostile.broken(data, rng) if rng.random() < 0.1 else data
        (folder / "model.safetensors").write_bytes(weights)
        (folder / "card.json").write_bytes(hostile.json_bytes(card, rng))
        known = read_card(folder)
        if "task" in known:
            task_of(known)
        load_model(folder)

    return put


def headers(home: Path) -> Target:
    """A safetensors file with a bent header: bare, as a saved model's, or as a checkpoint's."""
    from imir_detect.weights.native import ModelSpec
    from imir_detect.weights.state import read_tensors
    from imir_detect.weights.store import load_model, save_model

    spec = ModelSpec(5, 4, n_layers=1, d_model=4)
    folder = save_model(spec.boot(seed=0), spec, home / "model")
    tensors = load((folder / "model.safetensors").read_bytes())

    def put(rng: Random) -> None:
        data = hostile.safetensors_bytes(tensors, rng)
        if rng.random() < 0.3:
            (home / "bare.safetensors").write_bytes(data)
            read_tensors(home / "bare.safetensors")
            return
        card = json.loads((folder / "card.json").read_text())
        card["sha256"] = hashlib.sha256(data).hexdigest()
        (folder / "model.safetensors").write_bytes(data)
        (folder / "card.json").write_text(json.dumps(card))
        load_model(folder)

    return put


def torch_files(home: Path) -> Target:
    """A torch file under any suffix, opened as a user would."""
    from imir_detect.weights.native import ModelSpec
    from imir_detect.weights.sources import STATE_SUFFIXES, open_model

    spec = ModelSpec(5, 4, n_layers=1, d_model=4)
    tensors = {k: v.detach() for k, v in spec.boot(seed=0).state_dict().items()}
    (home / "config.json").write_text(json.dumps(asdict(spec)))

    def put(rng: Random) -> None:
        path = home / f"weights{rng.choice(STATE_SUFFIXES)}"
        path.write_bytes(hostile.torch_bytes(tensors, rng))
        open_model(path)

    return put


def fits(home: Path) -> Target:
    """A calibration, read and used."""
    from imir_detect.circuits import verdict

    document = json.loads(verdict.FILE.read_text())

    def put(rng: Random) -> None:
        (home / "fit.json").write_bytes(hostile.json_bytes(document, rng))
        verdict.read_fit(home / "fit.json")

    return put


def rows(home: Path) -> Target:
    """A finished bench run, read back into tables."""
    from imir_detect.benchmark.contract import Budget
    from imir_detect.benchmark.results import heatmap, markdown, pareto, read_rows
    from imir_detect.benchmark.run import Job, run_suite

    run_suite(("induction/zero/edge",), ("random",), folder=home, budget=Budget(draws=2, samples=8),
              progress=False)  # fmt: skip
    file = next((home / "runs").glob("*.json"))
    document = json.loads(file.read_text())
    assert Job  # the name of a run's file holds what it is

    def put(rng: Random) -> None:
        file.write_bytes(hostile.json_bytes(document, rng))
        found = read_rows(home)
        markdown(found), pareto(found), heatmap(found)

    return put


def exchange(home: Path) -> Target:
    """Scores and circuits in the files of other tools."""
    from imir_detect.benchmark import exchange as own
    from imir_detect.benchmark.graph import all_edges
    from imir_detect.strict import parse_json

    edges = all_edges(2, 2)
    scores = torch.arange(len(edges), dtype=torch.float64)
    kept = frozenset(edges[::3])
    modules = {k: v.tolist() for k, v in own.to_prune_scores(2, 2, scores).items()}
    formats = (
        (own.from_mib, own.to_mib((2, 2, 8), scores, kept)),
        (own.from_prune_scores, modules),
        (own.from_acdc, own.to_acdc(2, kept, 2)),
    )

    def put(rng: Random) -> None:
        read, document = rng.choice(formats)
        read(hostile.bent(parse_json(json.dumps(document)), rng))  # type: ignore[operator]

    return put


# -- state dicts and arguments --------------------------------------------------------------------


def states(home: Path) -> Target:
    """A state dict and its configuration, either bent; what comes out is read."""
    from imir_detect import model_from_state_dict, read_weights
    from imir_detect.weights.native import ModelSpec

    spec = ModelSpec(6, 5, n_layers=1, d_model=4, n_heads=2, norm="LN", d_mlp=3)
    tensors = {k: v.detach() for k, v in spec.boot(seed=0).state_dict().items()}
    config = json.loads(json.dumps({**asdict(spec), "normalization_type": "LN", "eps": 1e-5,
                                    "attn_scale": -1.0, "window_size": None}))  # fmt: skip

    def put(rng: Random) -> None:
        state: Any = hostile.bent_tensors(tensors, rng) if rng.random() < 0.6 else tensors
        given: Any = hostile.bent(config, rng) if rng.random() < 0.6 else config
        state = state if rng.random() < 0.97 else hostile.value(rng)
        read_weights(model_from_state_dict(state, given))

    return put


def configurations(home: Path) -> Target:
    """A folder whose config.json is bent: of TransformerLens, or of a Hugging Face model."""
    from safetensors.torch import save_file

    from imir_detect.weights.native import ModelSpec
    from imir_detect.weights.sources import open_model

    spec = ModelSpec(6, 5, n_layers=1, d_model=4, n_heads=2)
    tensors = {k: v.detach().clone() for k, v in spec.boot(seed=0).state_dict().items()}
    save_file(tensors, home / "model.safetensors")
    own = json.loads(json.dumps(asdict(spec)))
    gpt2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 1, "n_head": 1,
            "n_embd": 4, "vocab_size": 6, "n_positions": 5}  # fmt: skip

    def put(rng: Random) -> None:
        document = own if rng.random() < 0.8 else gpt2
        (home / "config.json").write_bytes(hostile.json_bytes(document, rng))
        open_model(home)

    return put


def arguments(home: Path) -> Target:
    """The arguments of the front door, up to where the analysis would begin."""
    from imir_detect import make_task, read_weights
    from imir_detect.gate import admit
    from imir_detect.tasks import REGISTRY
    from imir_detect.weights.native import ModelSpec

    weights = read_weights(ModelSpec(12, 7, d_model=8).boot(seed=0))

    def put(rng: Random) -> None:
        def some(*good: Any) -> Any:
            kind = rng.random()
            if kind < 0.3:
                return rng.choice(good)
            return torch.tensor([1.5, 2]) if kind < 0.35 else hostile.value(rng)

        model = weights if rng.random() < 0.9 else hostile.value(rng)
        pairs = {hostile_key(rng): hostile.value(rng) for _ in range(3)}
        knobs = {rng.choice(("n_blocks", "n_common", "offsets", "zipf", "x")): hostile.value(rng)}
        if rng.random() < 0.3:
            make_task(rng.choice(list(REGISTRY)), **knobs)
            return
        admit(
            model,
            task=some(None, "recall", "sorting"),
            relation=some(None, {1: 2}, pairs, torch.full((12,), -1)),
            context=some(None, 5),
            verify=some(None, "ablate"),
            seed=some(0, 3),
        )

    return put


def hostile_key(rng: Random) -> Any:
    """A value that can be a key."""
    found = hostile.value(rng)
    return str(found) if isinstance(found, dict | list) else found


# -- the command line -----------------------------------------------------------------------------

OPTIONS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("detect",): ("--json", "--html", "--context", "--seed", "--verify"),
    ("compare",): ("--json", "--html"),
    ("graph",): ("--nodes", "--json", "--seed"),
    ("support",): (),
    ("train",): ("--blocks", "--common", "--rare", "--rare-frequency", "--variability", "--present",
                 "--layers", "--heads", "--width", "--norm", "--mlp", "--rate", "--seed"),
    ("bench", "run"): ("--method", "--workers", "--backend", "--samples", "--seed"),
    ("bench", "report"): ("--folder", "--out", "--no-figures"),
    ("bench", "methods"): (),
    ("bench", "cases"): (),
    ("bench", "export"): ("--folder",),
    ("tasks",): (),
    ("tasks", "show"): ("--seed",),
    ("zoo", "list"): ("--folder",),
    ("zoo", "show"): ("--folder",),
    ("zoo", "check"): ("--folder",),
    ("zoo", "build"): ("--split",),
    ("theory", "confinement"): ("--seed",),
    ("nonsense",): (),
}  # fmt: skip
RIGHT = {  # arguments that fit, so that the options are what is tried
    ("detect",): ("one-layer",),
    ("graph",): ("one-layer",),
    ("compare",): ("good.json",),
    ("train",): ("new",),
    ("bench", "cases"): ("quick",),
    ("bench", "export"): ("induction/zero/edge", "exported"),
    ("tasks", "show"): ("recall",),
    ("zoo", "show"): ("icl",),
}
FLAGS = ("--verify", "--no-figures")
NEEDS_MORE = {  # commands that would work for minutes get one argument that cannot be
    ("train",): ("--blocks", "0"),
    ("bench", "run"): ("--method", "none-such"),
    ("zoo", "build"): ("--split", "none-such"),
    ("zoo", "check"): ("none-such",),
    ("theory", "confinement"): ("--seed", "x"),
}


def commands(home: Path) -> Target:
    """A command line: any command, its options and others, with values nobody should pass."""
    from imir_detect import detect_circuits, shipped_model
    from imir_detect.cli import main
    from imir_detect.zoo import shipped_folder

    files = _hostile_files(home)
    shutil.copytree(shipped_folder("one-layer-none-recall-5a"), home / "one-layer")
    detect_circuits(shipped_model("none")).to_json(home / "good.json")

    def put(rng: Random) -> None:
        command = rng.choice(list(OPTIONS))
        line = list(command)
        right = RIGHT.get(command, ())
        if right and rng.random() < 0.3:
            line += right
        else:
            for _ in range(rng.choice((0, 1, 1, 2, 3))):
                line.append(rng.choice((*hostile.TEXTS, *files)))
        line += NEEDS_MORE.get(command, ())
        for _ in range(rng.choice((0, 1, 2, 3))):
            option = rng.choice((*OPTIONS[command], "--quiet", "--folder", "--nonsense", "--"))
            line.append(option)
            if option not in (*FLAGS, "--quiet", "--"):
                line.append(str(rng.choice((*hostile.TEXTS, *hostile.NUMBERS, *files))))
        _run(main, line)

    return put


def _hostile_files(home: Path) -> tuple[str, ...]:
    """Files and folders that a user could name by mistake."""
    made = {
        "empty.json": b"",
        "text.txt": b"hello",
        "deep.json": b"[" * 100_000,
        "nan.json": b'{"format": NaN}',
        "pickle.pt": hostile.zipped(Random(0)),
        "model.safetensors": b"\xff" * 16,
        "folder/card.json": b'{"format": 1, "spec": {}, "sha256": 1}',
        "models/a/card.json": b"{}",
        "bare/a/card.json": b'{"format": 1, "spec": {"d_vocab": 3, "n_ctx": 2}, "sha256": ""}',
        "named/config.json": b'{"model_type": "gpt2", "n_layer": 1000000000}',
    }
    for name, data in made.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(data)
    os.mkfifo(home / "pipe.json")
    (home / "link.json").symlink_to("link.json")
    return (*made, "folder", "models", "bare", "named", "icl", "pipe.json", "link.json", ".", "..")


def _run(main: Callable[[], None], line: list[str]) -> None:
    """The program with this line; raises what nobody must see, and ImirError for a refusal."""
    from imir_detect.errors import ImirError

    errors, before = io.StringIO(), sys.argv
    sys.argv = ["imir-detect", *line]
    code: Any = 0
    try:
        with contextlib.redirect_stderr(errors):
            main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before
    said = errors.getvalue()
    if "Traceback" in said or "error: unexpected" in said or code not in (0, 1, 2):
        raise AssertionError(f"{line}: exit code {code}: {said}")
    if code == 1 and said.count("\n") != 1:
        raise AssertionError(f"{line}: {said.count(chr(10))} lines: {said}")
    if code:
        raise ImirError(said)


KINDS: dict[str, tuple[int, Callable[[Path], Target]]] = {
    "report": (30, reports),
    "card": (15, cards),
    "header": (15, headers),
    "torch": (8, torch_files),
    "fit": (10, fits),
    "rows": (10, rows),
    "exchange": (12, exchange),
    "state": (20, states),
    "config": (8, configurations),
    "argument": (20, arguments),
    "command": (25, commands),
}
