"""`imir-detect bench`: score circuit-discovery methods on models whose circuits are known."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from imir_detect.cli.terminal import Seed, console, escape
from imir_detect.errors import UnreadableFileError

app = typer.Typer(help="Score circuit-discovery methods on models whose circuits are known.")
Folder = Annotated[Path, typer.Option(help="Where runs, models and tables are kept.")]


@app.command()
def run(
    suite: Annotated[str, typer.Argument(help="quick, core or full; or one case's name.")],
    folder: Folder = Path("runs/bench"),
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method's name, or module:function; may be repeated. Default: all."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes at work.")] = 1,
    backend: Annotated[str, typer.Option(help="loky, dask or ray.")] = "loky",
    samples: Annotated[int, typer.Option(min=1, help="Prompts a method may draw.")] = 32,
    seed: Seed = 0,
) -> None:
    """Run what has not been run yet; the tables come after. Interrupt and resume at will."""
    from imir_detect.benchmark.contract import Budget
    from imir_detect.benchmark.results import markdown, write_rows
    from imir_detect.benchmark.run import DEFAULT, run_suite
    from imir_detect.benchmark.suites import case_names

    sys.path.insert(0, str(Path.cwd()))  # where module:function is looked for first
    rows = run_suite(
        (suite,) if "/" in suite else case_names(suite),
        tuple(method) if method else DEFAULT,
        folder=folder,
        budget=Budget(samples=samples, seed=seed),
        workers=workers,
        backend=backend,
    )
    write_rows(rows, folder)
    print(markdown(rows))
    for row in rows:
        if row["status"] == "failed":
            console.print(
                f"[red]failed[/red] {escape(row['case'])} {escape(row['method'])}: "
                f"{escape(row['reason'])}"
            )


@app.command()
def report(
    folder: Folder = Path("runs/bench"),
    out: Annotated[Path | None, typer.Option(help="Where to write; default FOLDER/report.")] = None,
    figures: Annotated[bool, typer.Option(help="Draw the two figures, too.")] = True,
    html: Annotated[Path | None, typer.Option(help="Write the leaderboard as a page.")] = None,
) -> None:
    """Leaderboard, Pareto plot and per-case heat map of the runs in a folder."""
    from imir_detect.benchmark.results import read_rows, write_report

    rows = read_rows(folder)
    if not rows:
        raise UnreadableFileError(
            f"no finished runs in {folder}",
            wanted="a folder that `bench run` filled",
            todo="run `imir-detect bench run quick --folder FOLDER` first",
        )
    for path in write_report(rows, out or folder / "report", figures=figures):
        console.print(escape(str(path)))
    if html is not None:
        from imir_detect.report.plates import write_leaderboard_page

        console.print(f"page written to {escape(str(write_leaderboard_page(rows, html)))}")


@app.command()
def methods() -> None:
    """List the methods: name, what each is given to see, and what it does."""
    from imir_detect.benchmark import methods as _  # noqa: F401  (registers them)
    from imir_detect.benchmark.contract import METHODS

    for entry in METHODS.values():
        print(f"{entry.name:20} {entry.sees:8} {entry.about}")


@app.command()
def cases(suite: Annotated[str, typer.Argument(help="quick, core or full.")] = "core") -> None:
    """List the names of a suite's cases."""
    from imir_detect.benchmark.suites import case_names

    print("\n".join(case_names(suite)))


@app.command()
def export(
    case: Annotated[str, typer.Argument(help="A case's name, such as induction/zero/edge.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    folder: Folder = Path("runs/bench"),
) -> None:
    """Write a case for other tools: HookedTransformer state, prompts, MIB-form reference graph."""
    from imir_detect.benchmark.exchange import export_case
    from imir_detect.benchmark.suites import make_case

    console.print(escape(str(export_case(make_case(case, folder / "models"), out))))
