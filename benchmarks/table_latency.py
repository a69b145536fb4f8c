r"""What a table does for your own traffic, at a running service.

    python -m benchmarks.table_latency --url http://127.0.0.1:8000 \
        --examples train.jsonl --probe probe.jsonl --out table_latency.json

Registers a temporary task with a table and a twin without one, sends every probe to both, in turn and at
several concurrencies, and deletes both. A line of `--examples` is `{"text": ..., "label": ...}`; a line of
`--probe` needs `text` only. Answers are neither read from the cache nor kept there. Times are those of a
client with one connection for each concurrent call, in milliseconds, by the length of the text in characters.
"""

import argparse
import json
import sys
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import local
from typing import Any

import numpy as np

from examples.demo import DEFAULT_URL, Client, DemoError
from examples.teaching import AFRESH, Labelled, ask_about, choice, register, remove

BANDS = (0, 64, 256, 1_024, 4_096)  # characters; each band ends where the next begins
CONCURRENCIES = (1, 8, 32)
WITHIN_S = 900.0
INSTRUCTIONS = "What is the text about?"


@dataclass(frozen=True, slots=True)
class Call:
    """One probe answered."""

    chars: int
    took_ms: float
    by: str  # table or model


def read_examples(path: Path) -> list[Labelled]:
    """Labelled texts, one in each line.

    Raises:
        DemoError: a line is none, or the file is empty or not there.
    """
    return [Labelled(row["text"], row["label"]) for row in _lines(path, ("text", "label"))]


def read_probes(path: Path) -> list[str]:
    """Texts, one in each line; errors as in `read_examples`."""
    return [row["text"] for row in _lines(path, ("text",))]


def _lines(path: Path, names: Sequence[str]) -> list[dict[str, str]]:
    wanted = "an object with " + " and ".join(f"{name!r}" for name in names) + " as strings"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DemoError(f"{path} cannot be read: {error}") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = None
        with suppress(ValueError):
            row = json.loads(line)
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in names):
            raise DemoError(f"{path}, line {number}: {line[:60]!r} is not {wanted}")
        rows.append(row)
    if not rows:
        raise DemoError(f"{path} is empty; each of its lines is {wanted}")
    return rows


def drive(url: str, task_id: str, probes: Sequence[str], at_once: int) -> list[Call]:
    """Send every probe once, `at_once` at a time."""
    mine = local()
    opened: list[Client] = []

    def call(text: str) -> Call:
        if not hasattr(mine, "client"):
            mine.client = Client(url)
            opened.append(mine.client)
        reply = mine.client.call("POST", "/v1/systemone", ask_about(task_id, text), AFRESH)
        (answer,) = reply.body["answers"].values()
        return Call(len(text), reply.took_ms, answer.get("answered_by", "model"))

    with ThreadPoolExecutor(at_once) as pool:
        calls = list(pool.map(call, probes))
    for client in opened:
        client.close()
    return calls


def bands(table: Sequence[Call], model: Sequence[Call]) -> list[dict[str, Any]]:
    """Both tasks' times for each length of text that occurs, shortest first."""
    found = []
    for low, high in zip(BANDS, (*BANDS[1:], None), strict=True):
        with_table, alone = (
            [call for call in calls if low <= call.chars and (high is None or call.chars < high)]
            for calls in (table, model)
        )
        if with_table:
            by_table = sum(call.by == "table" for call in with_table) / len(with_table)
            row = {"chars_from": low, "chars_below": high, "probes": len(with_table), "by_table": by_table}
            found.append(row | {"with_table": times(with_table), "model_only": times(alone)})
    return found


def times(calls: Sequence[Call]) -> dict[str, float]:
    """Median, 95th percentile and mean, in milliseconds."""
    took = np.array([call.took_ms for call in calls])
    p50, p95 = np.percentile(took, (50, 95))
    return {"p50_ms": float(p50), "p95_ms": float(p95), "mean_ms": float(took.mean())}


def measure(url: str, examples: Sequence[Labelled], probes: Sequence[str], alpha: float) -> dict[str, Any]:
    """Register both tasks, drive both, delete both, whatever happens.

    Raises:
        DemoError: a registration was refused, or the service does not answer.
    """
    name = f"table-latency-{uuid.uuid4().hex[:8]}"
    twin = f"{name}-model-only"
    question = choice(sorted({row.label for row in examples}), INSTRUCTIONS)
    with closing(Client(url)) as client:
        try:
            certify, table = {"alpha": alpha}, {"min_saving": 0.0}
            record = register(client, name, examples, question, WITHIN_S, certify=certify, fast_table=table)
            register(client, twin, examples[:1], question, WITHIN_S, certify=False, fast_table=False)
            runs = []
            for at_once in CONCURRENCIES:
                drive(url, name, probes[:at_once], at_once)  # connections and processes are warm
                with_table, alone = (drive(url, task, probes, at_once) for task in (name, twin))
                runs.append({"concurrency": at_once, "bands": bands(with_table, alone)})
        finally:
            for task in (name, twin):
                with suppress(DemoError):
                    remove(client, task)
    return {
        "url": url,
        "examples": len(examples),
        "probes": len(probes),
        "alpha": alpha,
        "status": record["status"],
        "certificate": record["certificate"]["summary"],
        "fast_table_report": record["fast_table_report"],
        "runs": runs,
    }


def shown(measured: dict[str, Any]) -> str:
    """The measurements in lines."""
    lines = [measured["certificate"]]
    for run in measured["runs"]:
        for band in run["bands"]:
            until = "and more" if band["chars_below"] is None else f"to {band['chars_below'] - 1}"
            one, other = band["with_table"], band["model_only"]
            lines.append(
                f"{run['concurrency']:>3} at once, {band['chars_from']} {until} characters, "
                f"{band['probes']} probes, {band['by_table']:.1%} by table: "
                + ", ".join(f"{name[:-3]} {one[name]:.2f} / {other[name]:.2f} ms" for name in one)
            )
    return "\n".join([*lines, "(with the table / model only)"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write.

    Returns:
        0, or 2 when nothing could be measured.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table_latency", description="Time a table.")
    parser.add_argument("--url", default=DEFAULT_URL, help="the service's root (default: %(default)s)")
    parser.add_argument("--examples", type=Path, required=True, help="JSONL with text and label")
    parser.add_argument("--probe", type=Path, required=True, help="JSONL with text")
    parser.add_argument(
        "--alpha", type=float, default=0.05, help="share of wrong answers (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, required=True, help="where the measurements are written")
    given = parser.parse_args(arguments)
    try:
        measured = measure(given.url, read_examples(given.examples), read_probes(given.probe), given.alpha)
        given.out.write_text(json.dumps(measured, indent=1) + "\n")
    except (DemoError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(shown(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
