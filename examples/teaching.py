"""Register a task with labelled texts at a running service, and wait until it is learned."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from examples.demo import Client, DemoError

LOOK_EVERY_S = 0.5
AFRESH = {"Cache-Control": "no-cache, no-store"}  # so that every answer is made, and none is kept


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text and the name of the option that is right."""

    text: str
    label: str


def choice(labels: Sequence[str], instructions: str) -> dict[str, Any]:
    """A choice between labels, whose names are read as words."""
    return {
        "type": "choice",
        "instructions": instructions,
        "criteria": {label: label.replace("_", " ") for label in labels},
    }


def register(
    client: Client,
    task_id: str,
    rows: Sequence[Labelled],
    question: dict[str, Any],
    within_s: float,
    **members: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Register a task in the place of any other of that name; the record when it is learned.

    Args:
        client: of the service.
        task_id: its name.
        rows: labelled texts.
        question: asked about each.
        within_s: how long learning may take.
        members: more of the body, such as `certify`.

    Raises:
        DemoError: it was refused, failed, or took longer.
    """
    examples = [
        {"request": {"state": row.text, "questions": {"answer": question}}, "answer": row.label}
        for row in rows
    ]
    body = json.dumps({"id": task_id, "examples": examples, **members}).encode()
    client.call("POST", "/v1/tasks?replace=1", body)
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        record = client.call("GET", path_of(task_id)).body
        fit = record.get("fit") or ({} if "store_version" in record else record)
        if fit.get("state") == "failed":
            raise DemoError(f"{task_id} could not be learned: {fit['error']}")
        if not fit:
            return record
        time.sleep(LOOK_EVERY_S)
    raise DemoError(f"{task_id} was not learned within {within_s:.0f} s; try fewer examples")


def remove(client: Client, task_id: str) -> None:
    """Remove a task.

    Raises:
        DemoError: it was refused.
    """
    client.call("DELETE", path_of(task_id))


def ask_about(task_id: str, text: str) -> bytes:
    """A request about a registered task."""
    return json.dumps({"model": "jev-latest", "state": text, "task": task_id}).encode()


def path_of(task_id: str) -> str:
    """Where a task is."""
    return f"/v1/tasks/{quote(task_id, safe='')}"
