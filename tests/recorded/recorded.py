"""Every recorded case, by name, and the command that writes the answers anew.

    python tests/recorded/recorded.py            all of them
    python tests/recorded/recorded.py induction  those whose name holds this

A recorded answer is what the code gave on the day, on a small seeded input. It says nothing about
being right: that is the business of the oracles, laws and hand-worked answers of the other tests.
It says that nothing has changed, number by number, where these do not look; mutation testing
(`benchmarks/mutation.py`) is what it was made for. After a change of what is computed, write the
answers anew and read the difference.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import recorded_algorithm
import recorded_attending
import recorded_constants
import recorded_coordinates
import recorded_deep
import recorded_frame
import recorded_graphs
import recorded_probe
import recorded_relation
import recorded_search
import torch
from plain_answers import Case, plain

ANSWERS = Path(__file__).parent / "answers.json"
CASES: dict[str, Case] = {
    f"{stage}: {name}": case
    for stage, cases in (
        ("frame", recorded_frame.CASES),
        ("coordinates", recorded_coordinates.CASES),
        ("circuits", recorded_probe.CASES),
        ("circuits", recorded_attending.CASES),
        ("circuits", recorded_relation.CASES),
        ("circuits", recorded_deep.CASES),
        ("circuits", recorded_graphs.CASES),
        ("circuits", recorded_algorithm.CASES),
        ("search", recorded_search.CASES),
        ("constants", recorded_constants.CASES),
    )
    for name, case in cases.items()
}


def draws() -> list[float]:
    """The first draws of every kind: other ones would make other answers of the same code."""
    g = torch.Generator().manual_seed(0)
    kinds = (
        torch.randn(20, dtype=torch.float64, generator=g),
        torch.rand(5, generator=g),
        torch.randint(1000, (5,), generator=g),
        torch.randperm(9, generator=g),
        torch.multinomial(torch.arange(1.0, 9.0, dtype=torch.float64), 3, generator=g),
    )
    return [float(x) for kind in kinds for x in kind]


def answer(name: str) -> Any:
    return json.loads(json.dumps(plain(CASES[name]())))


def main() -> None:
    known = json.loads(ANSWERS.read_text(encoding="utf-8")) if ANSWERS.exists() else {}
    answers = known.get("answers", {})
    chosen = [name for name in CASES if not sys.argv[1:] or any(w in name for w in sys.argv[1:])]
    written = {n: answer(n) if n in chosen or n not in answers else answers[n] for n in CASES}
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in written.items()]
    text = ",\n".join(lines)
    ANSWERS.write_text(
        f'{{"draws": {json.dumps(draws())},\n"answers": {{\n{text}\n}}}}\n', encoding="utf-8"
    )
    print(f"{len(chosen)} answers written")


if __name__ == "__main__":
    main()
