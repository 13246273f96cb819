"""Reports side by side: checkpoints of one run, seeds of one recipe, or a shelf of models."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from imir_detect.circuits.verdict import LABELS
from imir_detect.errors import InvalidArgumentError
from imir_detect.files import write_atomically
from imir_detect.report.sentences import SHORT, TITLES, listed
from imir_detect.report.tables import verdict_table
from imir_detect.result import Report
from imir_detect.table import Table, cell_text

MOST_TURNS = 4  # changes of label that are told in words
SAID = {  # of one model, and of several
    "icl": ("answers from the context", "answer from the context"),
    "iwl": ("answers from its weights", "answer from their weights"),
    "mixed": ("does both", "do both"),
    "none": ("has no circuit that answers", "have no circuit that answers"),
}
NAMED_TICKS = 24  # models named below the lines; of more, evenly spaced ones
SHOWN = ("model", "label", "icl", "iwl", "mixed", "none", "strongest", "in_context", "in_weights")


@dataclass(frozen=True)
class Comparison:
    """Reports by name, in the order given; `table` has a row each (see `verdict_table`)."""

    reports: dict[str, Report]

    @property
    def table(self) -> Table:
        """One row a model: label, probabilities, strengths, and accuracies where measured."""
        return verdict_table(self.reports)

    def __str__(self) -> str:
        table = self.table
        places = [table.columns.index(c) for c in SHOWN]
        return str(Table(SHOWN, ([row[i] for i in places] for row in table.rows)))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.summary())}</p>{self.table._repr_html_()}"

    def summary(self) -> str:
        """How many models have which label, and where the label changes, in a sentence."""
        labels = [report.label for report in self.reports.values()]
        counts = [f"{n} {SAID[k][n > 1]}" for k in LABELS if (n := labels.count(k))]
        names = list(self.reports)
        turns = [
            f"from {a} to {b} at {names[i + 1]}"
            for i, (a, b) in enumerate(pairwise(labels))
            if a != b
        ]
        models = "model" if len(labels) == 1 else "models"
        text = f"Of {len(labels)} {models}, {listed(counts)}."
        if 0 < len(turns) <= MOST_TURNS:
            text += f" In the order given the label goes {listed(turns)}."
        return text

    def to_html(self, path: Path | str) -> Path:
        """Write one page: a mosaic of verdicts, strengths in the order given, and the table."""
        path = Path(path)
        write_atomically(path, _page(self).encode(errors="backslashreplace"))
        return path


def compare(reports: Mapping[str, Report] | Iterable[Report]) -> Comparison:
    """Reports side by side.

    - reports: {name: report}, or reports in order, which are then named 0, 1, 2 and so on.

    The order is kept: for checkpoints of one run it is that of training, and the page draws the
    strength of the best in-context and of the in-weights circuit over it. Nothing is run.

    Raises InvalidArgumentError where there is no report, or where something else is given.

    >>> from imir_detect import detect_circuits, shipped_model
    >>> both = compare({name: detect_circuits(shipped_model(name)) for name in ("icl", "none")})
    >>> both.table.column("label")
    ['icl', 'none']
    """
    named = reports if isinstance(reports, Mapping) else dict(enumerate(reports))
    result = {str(name): report for name, report in named.items()}
    wrong = [name for name, report in result.items() if not isinstance(report, Report)]
    if wrong or not result:
        kinds = {type(result[name]).__name__ for name in wrong}
        raise InvalidArgumentError(
            "only reports can be compared",
            got=f"{', '.join(sorted(kinds))} as {', '.join(wrong[:3])}" if wrong else "none",
            wanted="one report or more, in a list or by name",
            todo="pass what detect_circuits or Report.from_json gave",
        )
    return Comparison(result)


def _page(comparison: Comparison) -> str:
    from imir_detect.report.page import asset, jinja, markup, script_hash, style

    environment, script = jinja(), asset("common.js")
    table = comparison.table
    return environment.get_template("compare.html.j2").render(
        table=table,
        texts=("model", "label", "strongest"),
        summary=comparison.summary(),
        labels=TITLES,
        words=SHORT,
        lines=_lines(table) if len(table) > 2 else None,
        cell=cell_text,
        style=markup(style(environment) + asset("compare.css")),
        script=markup(script),
        script_hash=markup(script_hash(script)),
    )


def _lines(table: Table) -> dict[str, Any]:
    """Geometry of the two lines over the models in order."""
    width, height, left = max(760.0, min(1100.0, 90.0 * len(table))), 260.0, 48.0
    right, top, bottom = width - 24, 16.0, height - 34

    def x(index: int) -> float:
        return round(left + 16 + index * (right - left - 32) / (len(table) - 1), 1)

    def y(strength: float) -> float:
        return round(bottom - strength * (bottom - top), 1)

    series = []
    for name, column in (("context", "in_context"), ("weights", "in_weights")):
        points = [
            (x(i), y(row[column]), f"{row['model']}: {name} {row[column]:.2f}")
            for i, row in enumerate(table)
        ]
        path = "M" + "L".join(f"{px} {py}" for px, py, _ in points)
        series.append({"name": name, "path": path, "points": points})
    every = -(-len(table) // NAMED_TICKS)
    names = [(x(i), row["model"][:14]) for i, row in enumerate(table) if i % every == 0]
    grid = [(y(s), f"{s:.1f}") for s in (0.0, 0.5, 1.0)]
    return {"width": width, "height": height, "left": left, "right": right, "grid": grid,
            "series": series, "names": names}  # fmt: skip
