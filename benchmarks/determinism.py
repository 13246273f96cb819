"""What is the same, to how many digits, when the same call is made again, or otherwise.

    python benchmarks/determinism.py --out benchmarks/results/determinism.md

Every row makes a result twice: again as it was, with two threads in place of one, with another
number of contexts in one forward pass, in other company. `identical` means every bit; else the
largest difference of any number in it, and what differs that is no number.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from imir_detect import detect_circuits, shipped_model
from imir_detect.coordinates import extended
from imir_detect.files import write_atomically
from imir_detect.tasks import REGISTRY, make_task
from imir_detect.training.loop import Recipe, evaluate, train
from imir_detect.training.stack import Member, train_stack
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import parameters

STEPS = 60
RECALL = make_task("recall")
SPEC = ModelSpec(RECALL.vocab_size, RECALL.n_positions, n_heads=2, d_model=64, norm="LN")


def data() -> list[torch.Tensor]:
    """512 sequences of every registered task."""
    found = []
    for name in sorted(REGISTRY):
        batch = make_task(name).sample(512, generator=torch.Generator().manual_seed(0))
        found += [batch.tokens, batch.targets]
    return found


def trained() -> Any:
    recipe = Recipe(steps=STEPS, evaluate_every=STEPS // 2)
    run = train(RECALL, SPEC, recipe, progress=False)
    return [p.detach().clone() for p in parameters(run.model).values()], run.history


def stacked(*names: str) -> Any:
    """The first of these members, trained in a stack of all of them."""
    how = {"steps": STEPS, "batch": 64, "evaluate_every": STEPS}
    members = [Member(name, RECALL, Recipe(seed=ord(name), **how)) for name in names]
    first = next(done for done in train_stack(members, SPEC) if done.member.name == names[0])
    return first.tensors


def report(name: str) -> Any:
    found = detect_circuits(shipped_model(name)).to_dict()
    found["meta"].pop("seconds", None)
    return found


def deep_report() -> Any:
    """A fresh model too deep to sum its paths, which is read by running it."""
    spec = ModelSpec(48, 24, n_layers=6, n_heads=2, d_model=32, norm="LN", d_mlp=32)
    return detect_circuits(spec.boot(seed=0)).to_dict()


def measured() -> Any:
    return evaluate(shipped_model("mixed"), make_task("recall"), n=2048)


def suite() -> Any:
    from imir_detect.benchmark.contract import Budget
    from imir_detect.benchmark.run import CLOCK, run_suite

    with tempfile.TemporaryDirectory() as folder:
        rows = run_suite(
            ("induction/mean/edge", "previous/zero/head"),
            ("truth", "imir", "imir-eliminate", "eap", "eap-ig-inputs", "acdc", "random"),
            folder=Path(folder),
            budget=Budget(samples=16, draws=50),
            progress=False,
        )
    return [{k: v for k, v in row.items() if k not in CLOCK} for row in rows]


def built() -> Any:
    from imir_detect.zoo.build import build
    from imir_detect.zoo.grid import grid

    entries = [e for e in grid("training") if e.recipe.steps == 1][:2]
    with tempfile.TemporaryDirectory() as folder:
        build(entries, folder, tell=lambda line: None)
        return {
            str(f.relative_to(folder)): f.read_bytes() for f in sorted(Path(folder).glob("*/*"))
        }


# -- comparing ------------------------------------------------------------------------------------


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every number, text and tensor of a result, by its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{name}[{index}]")
    else:
        yield name, value


def difference(a: Any, b: Any) -> str:
    """'identical', the largest difference between numbers, or the first place that differs."""
    worst = 0.0
    ours, theirs = dict(leaves(a)), dict(leaves(b))
    if ours.keys() != theirs.keys():
        return f"other places: {sorted(ours.keys() ^ theirs.keys())[:2]}"
    for name, x in ours.items():
        y = theirs[name]
        if isinstance(x, torch.Tensor):
            worst = max(worst, float((x.double() - y.double()).abs().max()))
        elif isinstance(x, float):
            worst = max(worst, abs(x - y))
        elif x != y:
            return f"differs at {name}"
    return "identical" if worst == 0 else f"{worst:.1e}"


def threads(make: Callable[[], Any], number: int) -> Any:
    torch.set_num_threads(number)
    try:
        return make()
    finally:
        torch.set_num_threads(1)


def at_once(number: int) -> Any:
    kept, extended.BATCH = extended.BATCH, number
    try:
        return deep_report()
    finally:
        extended.BATCH = kept


def alone_and_together() -> tuple[Any, Any]:
    """Logits of 64 sequences in one batch, and one by one."""
    model = shipped_model("mixed").original_model
    tokens = RECALL.sample(64, generator=torch.Generator().manual_seed(1)).tokens
    with torch.no_grad():
        return model(tokens), torch.cat([model(row[None]) for row in tokens])


def cases() -> Iterator[tuple[str, str, Callable[[], str]]]:
    """What, what is changed, and how to measure the difference."""
    makes: dict[str, Callable[[], Any]] = {
        "data of every task": data,
        f"weights and history after {STEPS} steps of `train`": trained,
        f"weights of a stack of two after {STEPS} steps": lambda: stacked("a", "b"),
        "accuracies of `evaluate`": measured,
        **{f"report of the shipped model {n}": lambda n=n: report(n) for n in ("icl", "mixed")},
        "report of a deep model": deep_report,
        "rows of `bench`": suite,
        "files of `zoo build`": built,
    }
    for name, make in makes.items():
        yield name, "made again", lambda make=make: difference(make(), make())
        if make not in (deep_report, built):  # minutes, where other work shares the two cores
            yield (
                name,
                "two threads for one",
                lambda make=make: difference(make(), threads(make, 2)),
            )
    yield (
        "report of a deep model",
        "contexts at once: 3 for 8",
        lambda: difference(at_once(8), at_once(3)),
    )
    yield (
        f"weights of a stack's member after {STEPS} steps",
        "alone, or with another",
        lambda: difference(stacked("a"), stacked("a", "b")),
    )
    yield (
        "logits of a native model",
        "batch of 64, or one by one",
        lambda: difference(*alone_and_together()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="the table; rows that are there are kept")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    lines = [
        "# What is the same when it is made again, or otherwise",
        "",
        "By `python benchmarks/determinism.py`; two cores, float32 models, float64 analysis, "
        f"torch {torch.__version__.split('+')[0]}.",
        "",
        "| what | changed | largest difference |",
        "|---|---|---|",
    ]
    there = []
    if args.out and args.out.exists():
        there = args.out.read_text(encoding="utf-8").splitlines()
    for what, changed, measure in cases():
        stem = f"| {what} | {changed} | "
        kept = [line for line in there if line.startswith(stem)]
        lines += kept or [f"{stem}{measure()} |"]
        print(lines[-1], flush=True)
        if args.out:
            write_atomically(args.out, ("\n".join([*lines, ""])).encode())


if __name__ == "__main__":
    main()
