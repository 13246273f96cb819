"""`imir-detect train`: a small recall model of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from imir_detect.cli.terminal import Seed, console, escape, settings


def train(
    folder: Annotated[Path, typer.Argument(help="Where the model is saved; a killed run resumes.")],
    blocks: Annotated[int, typer.Option(help="Blocks of a sequence.")] = 8,
    common: Annotated[int, typer.Option(help="Common tokens, paired by the fixed relation.")] = 32,
    rare: Annotated[int, typer.Option(help="Rare tokens, paired afresh.")] = 32,
    rare_frequency: Annotated[float, typer.Option(help="Chance that a block is rare.")] = 0.5,
    variability: Annotated[float, typer.Option(help="Chance that a common answer differs.")] = 0.0,
    present: Annotated[float, typer.Option(help="Chance that the answer is in context.")] = 1.0,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the model.")] = 2,
    heads: Annotated[int, typer.Option(min=1, help="Heads a layer.")] = 2,
    width: Annotated[int, typer.Option(min=1, help="Width of the residual stream.")] = 64,
    norm: Annotated[
        str | None, typer.Option(help="LN, RMS, LNPre or RMSPre; none by default.")
    ] = None,
    mlp: Annotated[int, typer.Option(help="Width of MLPs; 0 for attention only.")] = 0,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 2500,
    rate: Annotated[float, typer.Option(help="Learning rate, of AdamW.")] = 3e-3,
    seed: Seed = 0,
) -> None:
    """Train a small recall model and save it with a card of its measured behaviour."""
    from imir_detect.tasks import make_task
    from imir_detect.training.loop import Recipe
    from imir_detect.training.saved import train_and_save
    from imir_detect.weights.native import ModelSpec

    task = make_task(
        "recall",
        n_blocks=blocks,
        n_common=common,
        n_rare=rare,
        rare_frequency=rare_frequency,
        variability=variability,
        present=present,
    )
    spec = ModelSpec(
        task.vocab_size,
        task.n_positions,
        n_layers=layers,
        n_heads=heads,
        d_model=width,
        d_head=max(32, width // heads),
        d_mlp=mlp,
        norm=norm,  # type: ignore[arg-type]  # ModelSpec refuses what it does not know
    )
    card = train_and_save(task, spec, Recipe(steps=steps, rate=rate, seed=seed), folder)
    if settings.quiet:
        print(card["label"])
    console.print(f"saved to {escape(str(folder))}: {card['label']}, measured {card['measured']}")
