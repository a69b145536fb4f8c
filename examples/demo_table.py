"""Teach the running service a support-routing task, then ask it about texts that it has not seen.

    python -m examples.demo_table [--url http://127.0.0.1:8000] [--alpha 0.05] [--keep]

The texts are those of BANKING77 where ../shared/data has them, else the part of it in `examples/data`.
"""

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

from examples.demo import DEFAULT_URL, Client, DemoError
from examples.teaching import AFRESH, Labelled, ask_about, choice, register, remove

TASK = "demo-support-routing"
TWIN = "demo-support-routing-model"
INSTRUCTIONS = "What does the customer want?"
WHOLE = Path(__file__).resolve().parents[2] / "shared" / "data" / "banking77_train.csv"
PART = Path(__file__).parent / "data" / "support_routing.jsonl"
UNSEEN = 200
WITHIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Answered:
    """What came back for one unseen text, from the task with a table and from the one without."""

    by: str  # table or model
    certified: bool
    right: bool
    took_ms: float
    model_ms: float


def read(whole: Path = WHOLE, part: Path = PART) -> list[Labelled]:
    """Distinct labelled texts: all of BANKING77 if it is there, else our part of it."""
    if whole.exists():
        with whole.open(encoding="utf-8", newline="") as file:
            rows = [Labelled(row["text"].strip(), row["category"]) for row in csv.DictReader(file)]
    else:
        with part.open(encoding="utf-8") as lines:
            rows = [Labelled(**json.loads(line)) for line in lines]
    return list({row.text.casefold(): row for row in rows}.values())


def divide(rows: Sequence[Labelled]) -> tuple[list[Labelled], list[Labelled]]:
    """Texts to learn from, and `UNSEEN` others, by digest."""
    dealt = sorted(rows, key=lambda row: sha256(row.text.encode()).digest())
    return dealt[UNSEEN:], dealt[:UNSEEN]


def report(record: dict[str, Any]) -> str:
    """What was learned, certified and timed."""
    lines = [f"status: {record['status']['state']}: {record['status']['text']}"]
    if record.get("certificate"):
        lines.append(f"certificate: {record['certificate']['summary']}")
    about = record.get("fast_table_report")
    if about:
        lines.append(f"guard: {about['reason']}")
        for kind, found in about["kinds"].items():
            lines.append(f"  {kind}: {found['certified_share']:.1%} of held-out texts certified")
    return "\n".join(lines)


def ask(client: Client, unseen: Sequence[Labelled]) -> list[Answered]:
    """Ask about every text: the task with the table, and its twin, which has none."""
    answered = []
    for row in unseen:
        reply = client.call("POST", "/v1/systemone", ask_about(TASK, row.text), AFRESH)
        other = client.call("POST", "/v1/systemone", ask_about(TWIN, row.text), AFRESH)
        (answer,) = reply.body["answers"].values()
        right = answer["choice"] == row.label
        by, certified = answer["answered_by"], answer["certified"]
        answered.append(Answered(by, certified, right, reply.took_ms, other.took_ms))
    return answered


def summary(answered: Sequence[Answered]) -> str:
    """Shares, errors and times, in a sentence each."""
    certified = [one for one in answered if one.certified]
    table = [one.took_ms for one in answered if one.by == "table"]
    wrong = sum(not one.right for one in certified)
    lines = [f"{len(answered)} unseen texts: {len(table)} ({len(table) / len(answered):.1%}) by the table."]
    if certified:
        lines.append(
            f"Certified: {len(certified)}; wrong among them: {wrong} ({wrong / len(certified):.1%})."
        )
    if table:
        lines.append(f"Median time of a call: {median(table):.2f} ms by the table,")
    else:
        lines.append("Median time of a call: none by the table,")
    lines.append(f"  {median(one.model_ms for one in answered):.2f} ms by the model for the same texts.")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration.

    Returns:
        0 when the table answered some texts, 1 when it answered none, 2 when nothing could be asked.
    """
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo_table", description="Teach a task, and see what its table answers."
    )
    parser.add_argument("--url", default=DEFAULT_URL, help="the service's root (default: %(default)s)")
    parser.add_argument(
        "--alpha", type=float, default=0.05, help="share of wrong answers (default: %(default)s)"
    )
    parser.add_argument("--keep", action="store_true", help="leave the tasks registered")
    given = parser.parse_args(arguments)
    rows = read()
    learn, unseen = divide(rows)
    question = choice(sorted({row.label for row in rows}), INSTRUCTIONS)
    try:
        with closing(Client(given.url)) as client:
            print(f"registering {TASK} with {len(learn)} examples of {len(question['criteria'])} intents ...")
            certify = {"alpha": given.alpha}
            print(report(register(client, TASK, learn, question, WITHIN_S, certify=certify)))
            register(client, TWIN, learn[:1], question, WITHIN_S, certify=False, fast_table=False)
            answered = ask(client, unseen)
            if not given.keep:
                remove(client, TASK)
                remove(client, TWIN)
    except DemoError as error:
        print(error, file=sys.stderr)
        return 2
    print(summary(answered))
    return 0 if any(one.by == "table" for one in answered) else 1


if __name__ == "__main__":
    sys.exit(main())
