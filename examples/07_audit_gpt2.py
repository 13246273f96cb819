"""Audit GPT-2 small against the heads that the field knows in it. Needs a network; not run in CI.

    python examples/07_audit_gpt2.py

You will see the strongest induction and previous-token heads beside the known ones: induction 5.1,
5.5, 6.9, 7.2 and 7.10, previous-token 4.11 (Wang et al. 2023; the TransformerLens demos).
"""

from __future__ import annotations

from imir_detect import detect_circuits, open_model

KNOWN = {"induction": {"5.1", "5.5", "6.9", "7.2", "7.10"}, "previous_token": {"4.11"}}


def main() -> None:
    report = detect_circuits(open_model("gpt2"))
    print(report)
    for score, known in KNOWN.items():
        order = sorted(report.heads, key=lambda row: -row[score])
        print(f"\n{score}: predicted attention, * where the field knows the head")
        for row in order[:10]:
            name = f"{row['layer']}.{row['head']}"
            print(f"  {name:6} {row[score]:.2f} {'*' if name in known else ''}")


if __name__ == "__main__":
    main()
