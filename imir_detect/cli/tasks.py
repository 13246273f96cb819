"""`imir-detect tasks`: what models are trained and measured on."""

from __future__ import annotations

from typing import Annotated

import typer

from imir_detect.cli.terminal import Json, Seed, console, escape, plain_table, save_rows, settings

app = typer.Typer(help="The tasks that models are trained and measured on.")


def task_names(incomplete: str) -> list[str]:
    """Registered tasks that start so, for TAB in a shell."""
    from imir_detect.tasks import REGISTRY

    return [name for name in REGISTRY if name.startswith(incomplete)]


@app.callback(invoke_without_command=True)
def list_tasks(context: typer.Context, json: Json = None) -> None:
    """List the tasks; `tasks show NAME` prints examples, ceiling and circuits of one."""
    from imir_detect.tasks.show import task_list, task_rows

    if context.invoked_subcommand is not None:
        return
    if not console.is_terminal or settings.quiet:
        print(task_list())  # every column, one line a task
    else:
        table = plain_table("task", "what", "R")
        table.columns[1].no_wrap = False
        for row in task_rows():
            table.add_row(row["task"], escape(row["what"]), "yes" if row["relation"] == "R" else "")
        console.print(table)
    save_rows(task_rows() if json else [], json, "tasks")


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A task's name.", autocompletion=task_names)],
    seed: Seed = 0,
) -> None:
    """Print examples, ceiling, symmetries and circuits of one task."""
    from imir_detect.tasks.show import show_task

    print(show_task(name, seed=seed))
