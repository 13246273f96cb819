"""The report as one page: a file that opens offline, loads nothing, and can be sent to anyone.

The page is redrawn from a saved report; the model is not needed. All text is escaped, the data
lies in the page as strict JSON that cannot end its own script block, and a content security policy
allows the page's one script, by its hash, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imir_detect.circuits.core import Circuit
from imir_detect.coordinates.pathsum import name_of
from imir_detect.errors import ImirError
from imir_detect.files import write_atomically
from imir_detect.report.charts import Chart, course
from imir_detect.report.embedded import (
    clearest,
    embedded,
    is_number,
    one_head_column,
    script_data,
)
from imir_detect.report.layout import draw_graph
from imir_detect.report.sentences import (
    SHORT,
    TITLES,
    circuit_sentences,
    listed,
    story,
    verdict_sentence,
)
from imir_detect.report.tables import MEASURES
from imir_detect.report.walls import draw_maps, draw_profiles, shade
from imir_detect.result import Report
from imir_detect.table import cell_text

if TYPE_CHECKING:
    from jinja2 import Environment

MAPS_FROM = 17  # heads from which maps stand above the table
TEMPLATES = Path(__file__).parent / "templates"


def report_page(report: Report, *, name: str = "") -> str:
    """The page as text. `name`: the model's, for the title.

    Raises ImirError where jinja2 is not installed (it comes with the extra `report`).
    """
    environment = jinja()
    script = asset("common.js") + asset("page.js")
    profiles = draw_profiles(report)
    coordinates = one_head_column(report.coordinates)
    measured = dict(report.measured)
    ablation = measured.pop("ablation", {})
    elimination = measured.pop("elimination", None)
    accuracies = [
        (key.replace("_", " "), value)
        for key, value in measured.items()
        if isinstance(value, float) and 0 <= value <= 1
    ]
    other = [
        (key.replace("_", " "), value if isinstance(value, str) else json.dumps(value))
        for key, value in measured.items()
        if not (isinstance(value, float) and 0 <= value <= 1)
    ]
    said = [circuit_sentences(c) for c in report.circuits]
    return environment.get_template("page.html.j2").render(
        report=report,
        name=name,
        title=f"{name or 'Model'}: {TITLES[report.label]}",
        heading=TITLES[report.label],
        story=story(report),
        verdict=verdict_sentence(report),
        labels=SHORT,
        model=_model_line(report.meta),
        parts=_parts(report, bool(profiles.cells)),
        graph=_graph(environment, report),
        wide=draw_graph(report).compact,
        said=said,
        heads_of=_heads_of,
        maps=draw_maps(report) if len(report.heads) >= MAPS_FROM else (),
        measures=MEASURES,
        profiles=profiles,
        last_back=max(report.profiles.column("back"), default=0),
        ablation=ablation,
        elimination=elimination,
        traces=_traces(elimination) if elimination else (),
        accuracies=accuracies,
        other=other,
        relation=_relation(report.meta),
        columns=[(name, is_number(coordinates, name)) for name in coordinates.columns],
        first=clearest(coordinates),
        about=_about(report.meta),
        version=report.meta.get("imir_detect", ""),
        shade=shade,
        cell=cell_text,
        style=markup(style(environment)),
        script=markup(script),
        script_hash=markup(script_hash(script)),
        data=markup(embedded(script_data(report, coordinates))),
    )


def write_page(report: Report, path: Path | str, *, name: str = "") -> Path:
    """Write the page, atomically; returns the path."""
    path = Path(path)
    # A token can hold half a surrogate pair, which UTF-8 cannot: it is written as its escape.
    write_atomically(path, report_page(report, name=name).encode(errors="backslashreplace"))
    return path


def graph_svg(report: Report, circuit: int = 0) -> str:
    """One circuit's graph as an SVG of its own, light or dark as its reader's system is."""
    environment = jinja()
    style = environment.get_template("theme.css.j2").render() + asset("graph.css")
    return _graph(environment, report, chosen=circuit, only=True, style=markup(style))


def jinja() -> Environment:
    """The template environment: everything is escaped, unknown names are errors."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise ImirError(
            "a page needs jinja2", got="no such module", todo="pip install 'imir-detect[report]'"
        ) from error
    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined
    )


def _graph(
    environment: Environment,
    report: Report,
    *,
    chosen: int = 0,
    only: bool = False,
    style: str = "",
) -> str:
    template = environment.get_template("graph.svg.j2")
    text = template.render(
        g=draw_graph(report), count=len(report.circuits), chosen=chosen, only=only, style=style
    )
    return markup(text)


def asset(name: str) -> str:
    """A style sheet or script of the package's own."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def style(environment: Environment) -> str:
    """The style sheet that all pages share."""
    theme = environment.get_template("theme.css.j2").render()
    return theme + "\n" + asset("page.css") + asset("graph.css") + asset("charts.css")


def markup(text: str) -> Any:
    """Text of our own making, which the template writes as it is."""
    from markupsafe import Markup

    return Markup(text)


def script_hash(script: str) -> str:
    """What a content security policy calls this script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


# -- words ------------------------------------------------------------------------------------


def _heads_of(circuit: Circuit) -> str:
    return listed([name_of(h) for h in circuit.heads]) or "direct path"


def _parts(report: Report, profiles: bool) -> list[tuple[str, str]]:
    parts = [
        ("verdict", "Verdict", True),
        ("circuits", "Circuits", True),
        ("heads", "Heads", True),
        ("distance", "Distance", profiles),
        ("measured", "Measured", bool(set(report.measured) - {"elimination"})),
        ("elimination", "Elimination", "elimination" in report.measured),
        ("relation", "Relation", True),
        ("coordinates", "Coordinates", True),
        ("limits", "Limits", True),
        ("about", "How it was made", True),
    ]
    return [(place, text) for place, text, there in parts if there]


def _traces(elimination: dict[str, Any]) -> tuple[Chart, Chart]:
    """Loss, with its budget, and accuracy while directions are removed."""
    gone = "directions removed"
    budget = (elimination["budget"], f"budget {elimination['budget']:.3g}")
    return (
        course(elimination["losses"], x_name=gone, y_name="loss (nats)", level=budget),
        course(elimination["accuracies"], x_name=gone, y_name="accuracy", top=1.0),
    )


def _model_line(meta: dict[str, Any]) -> str:
    model = meta.get("model", {})
    if not model:
        return ""
    count = f"{model['layers']} layers of {model['heads']} heads"
    return f"{count}, width {model['d_model']}, {model['vocabulary']} tokens in the vocabulary."


def _relation(meta: dict[str, Any]) -> dict[str, Any]:
    relation = meta.get("relation", {})
    named = relation.get("named", 0)
    if not named:
        text = "No relation between tokens was "
        text += "found in the weights." if relation.get("source") == "estimated" else "given."
    else:
        how = "Estimated from the weights" if relation["source"] == "estimated" else "Given"
        text = f"{how}: {named} tokens have a partner, {relation['coverage']:.0%} of all."
    spelled, pairs = relation.get("spelled", []), relation.get("pairs", [])
    shown = [[repr(token) for token in pair] for pair in spelled]
    return {"text": text, "pairs": [*shown, *pairs[len(shown) :]]}


def _largest(value: Any) -> str:
    """A list of numbers by its largest, anything else as it is."""
    if isinstance(value, list) and value and all(isinstance(v, float) for v in value):
        return f"up to {max(value):.3f}"
    return str(value)


def _about(meta: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for key, value in meta.items():
        if key == "relation":
            continue
        if isinstance(value, dict):
            value = ", ".join(f"{k} {_largest(v)}" for k, v in value.items())
        elif isinstance(value, list):
            value = "; ".join(map(str, value)) or "nothing"
        rows.append((key.replace("_", " "), "not loaded" if value is None else str(value)))
    return rows
