"""A report in sentences: what a colleague who has never seen a coordinate should read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from imir_detect._typing import HeadIndex
from imir_detect.circuits.core import BY_RUNNING, IN_CONTEXT, Circuit
from imir_detect.coordinates.pathsum import name_of
from imir_detect.result import Report

TITLES = {
    "icl": "Answers from the context",
    "iwl": "Answers from its weights",
    "mixed": "Answers from the context and from its weights",
    "none": "No circuit that answers",
}
SHORT = {"icl": "context", "iwl": "weights", "mixed": "both", "none": "neither"}

# What each kind does. {ends}: the heads that no other head of the circuit reads; {feeders}: the
# rest; {s} is the ending of a verb whose subject is {ends}.
DOES = {
    "induction": "When a token comes back, {ends} look{s} at what stood behind its earlier copy "
    "and write{s} that.",
    "induction_long_prefix": "When the last few tokens come back, {ends} look{s} at what stood "
    "behind their earlier copy and write{s} that.",
    "pointer_induction": "When a token comes back, {feeders} find the earlier copy, and {ends} "
    "follow{s} that pointer to the token behind it and write{s} it.",
    "skip": "When a token comes back, {ends} write{s} a token that stood a fixed distance from its "
    "earlier copy.",
    "k_hop": "{ends} follow{s} a chain of matches through the context and write{s} what stands at "
    "its end.",
    "in_weights": "Whatever the context holds, the partner that a token has in a learned relation "
    "is written: the answer sits in the weights.",
    "duplicate_token": "{ends} attend{s} to earlier copies of the same token.",
    "previous_token": "{ends} attend{s} to the token just before.",
    "offset": "{ends} attend{s} a fixed number of tokens back.",
    "prefix_match": "{ends} attend{s} to the token behind an earlier copy of this one, but "
    "write{s} no answer.",
    "suppression": "{ends} push{es} down the logit of the token attended to.",
    "backward_retrieval": "When a token comes back, {ends} write{s} what stood before its earlier "
    "copy.",
    "position_sink": "{ends} attend{s} to the first position, whatever stands there.",
}
ANSWERS = (*IN_CONTEXT, "skip", "in_weights")
FED_BY_SHIFT = ("induction", "induction_long_prefix", "skip")
OWN = ("direct", "own")  # paths on which a head reads the token itself
UNITS = ("shift", "match", "copy", "associate")
NUMBERS = {"1": "one", "2": "two", "3": "three"}


def percent(share: float) -> str:
    """A share as a whole percentage; what is not quite none or all does not read so.

    >>> percent(0.88), percent(0.998), percent(1.0), percent(0.001)
    ('88%', '> 99%', '100%', '< 1%')
    """
    if 0.995 <= share < 1:
        return "> 99%"
    return "< 1%" if 0 < share < 0.005 else f"{share:.0%}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """ "a, b and c"; a long list is cut and counted."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more heads"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else list(names))


def verdict_sentence(report: Report) -> str:
    """Label and probability, and how far the probability can be trusted."""
    share = percent(report.probabilities[report.label])
    works = [c for c in report.circuits if c.works and c.kind in ANSWERS]
    if works:
        kinds = listed([f"{c.kind.replace('_', ' ')} (strength {c.strength:.2f})" for c in works])
        found = f"Circuits that work: {kinds}."
    else:
        found = "No circuit that answers reaches a strength of one half."
    trust = ", calibrated on models whose behaviour was measured."
    if not report.meta.get("calibrated"):
        trust = ", not calibrated: read it as an order, not as a frequency."
    elif outside := report.meta.get("extrapolated"):
        why = f" ({'; '.join(map(str, outside))})" if isinstance(outside, list) else ""
        trust = ", extrapolated: the model lies outside the range of those that probabilities were "
        trust += f"calibrated on{why}, so read it as an order, not as a frequency."
    return f"Probability {share}{trust} {found}"


def story(report: Report) -> str:
    """What the model does when it answers: the strongest working circuit in context, and the one
    in weights."""
    works = [c for c in report.circuits if c.works and c.kind in ANSWERS]
    told = [next((c for c in works if (c.kind == "in_weights") == weights), None)
            for weights in (False, True)]  # fmt: skip
    text = " ".join(" ".join(circuit_sentences(c)) for c in told if c is not None)
    return text or "Nothing was found in the weights that answers by itself."


def circuit_sentences(circuit: Circuit) -> tuple[str, ...]:
    """What the circuit does, and how well and where."""
    ends = [name_of(h) for h in circuit.ends]
    feeders = [name_of(h) for h in circuit.heads if h not in circuit.ends]
    one = len(ends) == 1
    text = DOES.get(circuit.kind, "{ends} make{s} a circuit of this kind.").format(
        ends=listed(ends) or "the direct path",
        feeders=listed(feeders) or "earlier heads",
        s="s" if one else "",
        es="es" if one else "",
    )
    said = [text]
    if feeders and circuit.kind in FED_BY_SHIFT:
        tells = "tells" if len(feeders) == 1 else "tell"
        told = "it" if one else "them"
        said.append(f"{listed(feeders)} {tells} {told} where to look, by marking each token with "
                    "one that stood before it.")  # fmt: skip
    covered = f"{percent(circuit.coverage.share)} of {circuit.coverage.of}"
    if circuit.kind in ANSWERS and BY_RUNNING in circuit.note:
        state = "" if circuit.works else ", too few to count"
        said.append(
            f"The model, run on random contexts, answers so on {percent(circuit.strength)} of "
            f"them{state}; {covered} come near the best."
        )
    elif circuit.kind in ANSWERS:
        state = "It works" if circuit.works else "It is too weak to count"
        said.append(
            f"{state}: by itself, and not overruled by the rest of the model, it gives the "
            f"right answer on {percent(circuit.strength)} of random contexts, counted at the "
            f"{covered} that it covers."
        )
    else:
        said.append(f"Strength {circuit.strength:.2f}, at the {covered} that it covers.")
    return tuple(said)


def head_sentences(report: Report, head: HeadIndex, most: int = 4) -> tuple[str, ...]:
    """What one head does, strongest predicted behaviour first: "attends one back: 4.0 nats,
    predicted attention 0.94". At most one sentence a unit and path."""
    return sentences_by_head(report, most).get(head, ())


def sentences_by_head(report: Report, most: int = 4) -> dict[HeadIndex, tuple[str, ...]]:
    """`head_sentences` of every head, in one pass over the coordinates."""
    rows: dict[HeadIndex, list[dict[str, Any]]] = {}
    for row in report.coordinates:
        if row["layer"] is not None and row["effect"] > 0 and row["unit"] in UNITS:
            rows.setdefault((row["layer"], row["head"]), []).append(row)
    return {
        head: tuple(_did(row) for row in _clearest(found, most)) for head, found in rows.items()
    }


def _clearest(rows: Iterable[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: -row["predicted"] * abs(row["cosine"]))[:most]


def _did(row: dict[str, Any]) -> str:
    effect, share = f"{row['effect']:.1f} nats", f"{row['predicted']:.2f}"
    if row["unit"] == "shift":
        back = row["selection"].removeprefix("shift ")
        return f"attends {NUMBERS.get(back, back)} back: {effect}, predicted attention {share}"
    if row["unit"] == "match":
        return f"attends {_match(row['path'])}: {effect}, predicted attention {share}"
    carrier = row["path"].rpartition(">")[0]
    token = f"what {carrier} carried to where it attends" if carrier else "the token it attends to"
    written = token if row["unit"] == "copy" else f"the learned partner of {token}"
    return f"writes {written}: {effect}, on top for {share} of tokens"


def _match(path: str) -> str:
    query, key = (part.partition(":")[2] for part in path.partition(" ")[::2])
    if query == key and key in OWN:
        return "to copies of its own token"
    there = f"what {key} carried there"
    there = "the token there" if key in OWN else "the token before it" if key == "before" else there
    here = "its own token" if query in OWN else f"what {query} carried here"
    return f"where {there} equals {here}"
