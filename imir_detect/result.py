"""`Report`: what `detect_circuits` gives back; it prints, shows in a notebook, and is JSON."""

from __future__ import annotations

import base64
import html
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imir_detect.circuits.core import Circuit, Coverage
from imir_detect.coordinates.pathsum import Edge, name_of
from imir_detect.errors import ImirError, UnreadableFileError
from imir_detect.files import write_atomically
from imir_detect.table import Table, cell_text

if TYPE_CHECKING:
    from rich.table import Table as RichTable

__all__ = ["Report", "Table", "cell_text"]  # tables live next door and are named here, too
FORMAT = 1
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
        lines += [f"  {circuit}" for circuit in self.circuits] or ["  no circuit found"]
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
        items = "".join(f"<li>{html.escape(str(c))}</li>" for c in self.circuits)
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

    # -- JSON ---------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types only."""
        return {
            "format": FORMAT,
            "label": self.label,
            "probabilities": self.probabilities,
            "circuits": [asdict(circuit) for circuit in self.circuits],
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
        text = json.dumps(self.to_dict(), allow_nan=False, indent=1) + "\n"
        write_atomically(path, text.encode())
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
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            if data["format"] != FORMAT:
                raise ValueError(f"format {data['format']!r}, not {FORMAT}")
            return cls(
                probabilities=data["probabilities"],
                circuits=tuple(_circuit(entry) for entry in data["circuits"]),
                heads=Table(**data["heads"]),
                coordinates=Table(**data["coordinates"]),
                measured=data["measured"],
                limits=tuple(data["limits"]),
                warnings=tuple(data["warnings"]),
                meta=data["meta"],
                profiles=Table(**data["profiles"]) if "profiles" in data else NO_PROFILES,
            )
        except (OSError, ValueError, KeyError, TypeError, ImirError) as error:
            raise UnreadableFileError(
                f"{path} is not a readable report",
                got=f"{type(error).__name__}: {error}",
                wanted="a file that Report.to_json wrote",
                todo="write the report again",
            ) from error


def _circuit(entry: dict[str, Any]) -> Circuit:
    def node(value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    coverage = entry["coverage"]
    return Circuit(
        kind=entry["kind"],
        heads=tuple(node(h) for h in entry["heads"]),
        edges=tuple(Edge(node(s), node(t), port) for s, t, port in entry["edges"]),
        effects=entry["effects"],
        strength=entry["strength"],
        coverage=Coverage(coverage["share"], coverage["of"], tuple(coverage["exceptions"])),
        note=entry["note"],
        parts=tuple((node(head), role) for head, role in entry.get("parts", ())),
        hops=entry.get("hops", 1),
    )


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


def _flat(values: dict[str, Any], prefix: str = "") -> str:
    parts = []
    for key, value in values.items():
        if isinstance(value, dict):
            parts.append(_flat(value, f"{prefix}{key}."))
        else:
            parts.append(f"{prefix}{key} {cell_text(value)}")
    return ", ".join(parts)
