"""`Report`: what `detect_circuits` gives back; it prints, shows in a notebook, and is JSON."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imir_detect.circuits.core import Circuit
from imir_detect.coordinates.pathsum import name_of
from imir_detect.errors import ImirError, InvalidArgumentError, UnreadableFileError
from imir_detect.files import write_atomically
from imir_detect.report_json import FORMAT, report_fields
from imir_detect.strict import json_text, read_json
from imir_detect.table import Table, cell_text

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from imir_detect.circuits.eliminate import Elimination

__all__ = ["Report", "Table", "cell_text"]  # tables live next door and are named here, too
MOST_LISTED = 8  # entries of a list of measurements that are printed
SENTENCE = {
    "icl": "answers from the context: an in-context circuit works, in-weights association does not",
    "iwl": "answers from its weights: in-weights association works, no in-context circuit does",
    "mixed": "answers from the context and from its weights: both kinds of circuit work",
    "none": "no circuit that answers was found to work",
}
MOST_PAIRS = 6  # of R that are printed as strings
NO_PROFILES = Table(("layer", "head", "back", "attention"), ())


@dataclass(frozen=True)
class Report:
    """What a model's weights say about its circuits (fields as in the public contract).

    `probabilities` sum to 1 and `label` is the most probable; `circuits` are strongest first;
    `heads` and `coordinates` are tables, `profiles` is one of mean attention by distance (layer,
    head, back, attention); `measured` holds behaviour where something was run; `limits` says what
    was not looked at, `warnings` what is odd about the model, `meta` how the analysis was made.
    Shares, attention and accuracies in [0, 1], effects in nats.

    >>> from imir_detect import detect_circuits, shipped_model
    >>> report = detect_circuits(shipped_model("icl"))
    >>> report.label, report.circuits[0].kind, len(report.heads)
    ('icl', 'induction', 4)
    """

    probabilities: dict[str, float]
    circuits: tuple[Circuit, ...]
    heads: Table
    coordinates: Table
    measured: dict[str, Any]
    limits: tuple[str, ...]
    warnings: tuple[str, ...]
    meta: dict[str, Any]
    profiles: Table = NO_PROFILES

    @property
    def label(self) -> str:
        """The most probable of "icl", "iwl", "mixed", "none"."""
        return max(self.probabilities, key=lambda name: self.probabilities[name])

    @property
    def _chance(self) -> str:
        """The label's probability; marked where the model lies outside the calibration's range."""
        mark = ", extrapolated" if self.meta.get("extrapolated") else ""
        return f"{self.probabilities[self.label]:.2f}{mark}"

    def __str__(self) -> str:
        lines = [f"{self.label} ({self._chance}): {SENTENCE[self.label]}"]
        lines += [f"  {circuit.brief()}" for circuit in self.circuits] or ["  no circuit found"]
        measured = {k: v for k, v in self.measured.items() if k != "ablation"}
        if measured:
            lines.append("measured: " + _flat(measured))
        for kind, found in self.measured.get("ablation", {}).items():
            lines.append(f"measured: {kind} ablated, right answers: {_ablated(found)}")
        spelled = self.meta.get("relation", {}).get("spelled")
        if spelled:
            pairs = ", ".join(f"{a!r} -> {b!r}" for a, b in spelled[:MOST_PAIRS])
            lines.append(f"strongest pairs of R: {pairs}")
        lines += [f"warning: {text}" for text in self.warnings]
        lines.append(f"not looked at, or only in part: {len(self.limits)} points in .limits")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{html.escape(c.brief())}</li>" for c in self.circuits)
        notes = "".join(f"<li>{html.escape(t)}</li>" for t in (*self.warnings, *self.limits))
        return (
            f"<p><b>{html.escape(self.label)}</b> ({self._chance}): {SENTENCE[self.label]}</p>"
            f"{self._picture()}<ul>{items or '<li>no circuit found</li>'}</ul>"
            f"{self.heads._repr_html_()}"
            f"<details><summary>limits and warnings</summary><ul>{notes}</ul></details>"
        )

    def _picture(self) -> str:
        """The strongest circuit's graph as an image of its own, whose style stays inside it; empty
        where there is no circuit, or no jinja2 to draw it."""
        try:
            from imir_detect.report.page import graph_svg

            svg = graph_svg(self) if self.circuits else ""
        except ImirError:
            return ""
        data = base64.b64encode(svg.encode()).decode()
        source = f"data:image/svg+xml;base64,{data}"
        said = html.escape(str(self.circuits[0])) if svg else ""
        return f'<img src="{source}" alt="{said}" style="max-width:100%">' if svg else ""

    def __rich__(self) -> RichTable:
        """The circuits as a table, under the label, for `rich.print`."""
        from rich.table import Table as RichTable
        from rich.text import Text

        title = f"{self.label} ({self.probabilities[self.label]:.2f}): {SENTENCE[self.label]}"
        table = RichTable(title=Text(title), title_justify="left")
        for name in ("circuit", "heads", "strength", "holds for", "nats"):
            table.add_column(name)
        for circuit in self.circuits:
            effects = ", ".join(f"{unit} {nats:.1f}" for unit, nats in circuit.effects.items())
            heads = ", ".join(name_of(head) for head in circuit.heads) or "direct path"
            share = f"{circuit.coverage.share:.0%} of {circuit.coverage.of}"
            cells = (circuit.kind, heads, f"{circuit.strength:.2f}", share, effects)
            table.add_row(*map(Text, cells))
        return table

    def with_elimination(self, found: Elimination, names: Iterable[Any]) -> Report:
        """The report with the trace of Algorithm 1 in `measured["elimination"]`, so that its page
        draws it and its file keeps it.

        `found`: what `eliminate` gave for this model; `names`: those of all directions, in order
        (`objective.names`). Losses in nats, accuracies in [0, 1]; `blocked` is None where nothing
        is left. Raises InvalidArgumentError where there are not as many names as directions.
        """
        named = [str(name) for name in names]
        if len(named) != len(found.removed) + len(found.kept):
            raise InvalidArgumentError(
                "the names are not those of this elimination",
                got=f"{len(named)} names",
                wanted=f"{len(found.removed) + len(found.kept)}, one a direction",
                todo="pass the objective's own names",
            )
        trace = {
            "removed": [named[i] for i in found.removed],
            "kept": [named[i] for i in found.kept],
            "losses": list(found.losses),
            "accuracies": list(found.accuracies),
            "budget": found.budget,
            "blocked": found.blocked if math.isfinite(found.blocked) else None,
            "evaluations": found.evaluations,
        }
        return replace(self, measured={**self.measured, "elimination": trace})

    # -- JSON ---------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types only."""
        return {
            "format": FORMAT,
            "label": self.label,
            "probabilities": self.probabilities,
            "circuits": [_stored(circuit) for circuit in self.circuits],
            "heads": {"columns": self.heads.columns, "rows": self.heads.rows},
            "coordinates": {"columns": self.coordinates.columns, "rows": self.coordinates.rows},
            "profiles": {"columns": self.profiles.columns, "rows": self.profiles.rows},
            "measured": self.measured,
            "limits": self.limits,
            "warnings": self.warnings,
            "meta": self.meta,
        }

    def to_json(self, path: Path | str) -> Path:
        """Write the report as strict JSON (no NaN), atomically; returns the path."""
        path = Path(path)
        write_atomically(path, json_text(self.to_dict()).encode())
        return path

    def to_html(self, path: Path | str, *, name: str = "") -> Path:
        """Write the report as one page that opens offline (needs the extra `report`); returns the
        path. `name`: what the page calls the model."""
        from imir_detect.report.page import write_page

        return write_page(self, path, name=name)

    @classmethod
    def from_json(cls, path: Path | str) -> Report:
        """Read what `to_json` wrote; equal to the report that was written."""
        try:
            return cls(**report_fields(read_json(path)))
        except (OSError, ValueError, TypeError) as error:
            raise UnreadableFileError(
                f"{path} is not a readable report",
                got=f"{type(error).__name__}: {error}",
                wanted="a file that Report.to_json wrote",
                todo="write the report again",
            ) from error


def _ablated(found: dict[str, Any]) -> str:
    """Share of right answers with the model as it is, without the circuit, without others."""
    names = (
        ("as it is", "intact"),
        ("heads ablated", "ablated"),
        ("resampled", "resampled"),
        ("as many random heads", "random"),
    )
    parts = []
    for text, key in names:
        if found.get(key) is not None:
            around = found.get("intervals", {}).get(key)
            span = f" [{around[0]:.2f}, {around[1]:.2f}]" if around else ""
            parts.append(f"{text} {found[key]:.2f}{span}")
    passes = found.get("forward_passes")
    return ", ".join(parts) + (f" ({passes} forward passes)" if passes else "")


def _stored(circuit: Circuit) -> dict[str, Any]:
    """What a report file says of a circuit: all but the question it answers."""
    return {key: value for key, value in asdict(circuit).items() if key != "lookup"}


def _flat(values: dict[str, Any], prefix: str = "") -> str:
    parts = []
    for key, value in values.items():
        if isinstance(value, dict):
            parts.append(_flat(value, f"{prefix}{key}."))
        elif isinstance(value, list | tuple) and len(value) > MOST_LISTED:
            parts.append(f"{prefix}{key} ({len(value)} entries)")
        else:
            parts.append(f"{prefix}{key} {cell_text(value)}")
    return ", ".join(parts)
