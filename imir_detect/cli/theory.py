"""`imir-detect theory`: the paper's theorems, checked here and now on small cases."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from imir_detect.cli.terminal import Json, Seed, console, escape, save_rows, settings

app = typer.Typer(help="The paper's theorems, checked on small cases.", no_args_is_help=True)


@app.command()
def confinement(seed: Seed = 0, json: Json = None) -> None:
    """Theorem 1: the share of the gradient outside the span, over all sequences of a tiny task."""
    import torch

    from imir_detect.frame.relations import selections
    from imir_detect.models.idealised import idealised
    from imir_detect.theory.confinement import outside_share, population_gradient, random_point
    from imir_detect.theory.enumeration import TinyRecall

    relation = torch.tensor([1, 0, 3, 2, -1, -1, -1])  # two pairs and three rare tokens
    settings_of: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("all of the theorem's conditions", {}, {}),
        ("without the association", {}, {"association": False}),
        ("with a token skew", {"skew": 1.0}, {}),
    ]
    rows = []
    for name, broken, chosen in settings_of:
        task = TinyRecall(relation, 2, 4, rare_frequency=0.4, **broken)
        model = idealised(7, 4, 2, relation=relation, centring="class", seed=seed)
        frame = model.frame(selections(relation, 4, **chosen))
        point = random_point(model, frame, seed=seed)
        share = outside_share(frame, population_gradient(point, task.enumerate()))
        rows.append({"setting": name, "outside share": share})
    _say("outside the span: round-off where the theorem holds, more where it does not", rows, json)


@app.command()
def starvation(seed: Seed = 0, json: Json = None) -> None:
    """Theorem 2: how an in-weights circuit starves the in-context one's gradient."""
    from imir_detect.tasks import make_task
    from imir_detect.theory.starvation import starvation as measure

    task = make_task("recall", n_blocks=8, n_common=64, n_rare=64, rare_frequency=0.5,
                     variability=0.5)  # fmt: skip
    _say("gradient with an in-weights circuit over that without", measure(task, seed=seed), json)


@app.command()
def burstiness(seed: Seed = 0, json: Json = None) -> None:
    """Theorem 3: the in-context gradient grows with burstiness."""
    from imir_detect.tasks import make_task
    from imir_detect.theory.burstiness import burstiness as measure

    task = make_task("recall", n_blocks=32, n_common=192, n_rare=192, rare_frequency=0.5)
    _say("gradient at burstiness b over that at 1", measure(task, seed=seed), json)


def _say(title: str, rows: Iterable[Any], json: Path | None) -> None:
    from imir_detect.table import Table

    rows = list(rows)
    table = Table(rows[0], (row.values() for row in rows))
    shown = Table(table.columns, ([_digits(value) for value in row] for row in table.rows))
    if settings.quiet:
        print(shown)
    console.print(escape(f"{title}\n{shown}"), soft_wrap=True)
    save_rows(rows, json, "rows")


def _digits(value: Any) -> Any:
    """Small numbers in full: two decimals would show them as zero."""
    small = isinstance(value, float) and 0 < abs(value) < 0.01
    return f"{value:.1e}" if small else value
