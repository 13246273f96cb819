"""`imir-detect tasks`: what models are trained and measured on."""

from __future__ import annotations

from typing import Annotated

import typer

from imir_detect.cli.terminal import Seed

app = typer.Typer(help="The tasks that models are trained and measured on.")


def task_names(incomplete: str) -> list[str]:
    """Registered tasks that start so, for TAB in a shell."""
    from imir_detect.tasks import REGISTRY

    return [name for name in REGISTRY if name.startswith(incomplete)]


@app.callback(invoke_without_command=True)
def list_tasks(context: typer.Context) -> None:
    """List the tasks; `tasks show NAME` prints examples, ceiling and circuits of one."""
    from imir_detect.tasks.show import task_list

    if context.invoked_subcommand is None:
        print(task_list())


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A task's name.", autocompletion=task_names)],
    seed: Seed = 0,
) -> None:
    """Print examples, ceiling, symmetries and circuits of one task."""
    from imir_detect.tasks.show import show_task

    print(show_task(name, seed=seed))
