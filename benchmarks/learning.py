"""A table learned from traffic, through the running service: CLINC150 asked of the embedded engine.

The service is started, with `python -m jobs.refit --watch` beside it, and a task is registered with its
question alone. Then in-scope texts come, each once, until a table serves and has served for a while; and then
texts that are out of scope, from none of the traffic to 40 % of it. Printed are the states that the task goes
through and after how many requests, how many reads of the engine were saved, how often the table's answers
agreed with the engine, and after how many requests the version was withdrawn. What its decisions become is
checked at the end: none is replayed, and none is given any more.

`python -m benchmarks.learning [--rows N] [--requests N] [--seed N]`. How this goes over many seeds, without
the service around it: `python -m benchmarks.watching`.
"""

import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from config.paths import CHECKOUT
from jobs.calibrate import spoken
from tests.running import Service, free_port, one_cluster, settings_for, start

DATA: Final = Path(__file__).resolve().parents[2] / "shared" / "data" / "clinc150_train.jsonl"
TASK: Final = "intent"
CONCURRENCY: Final = 8
PART: Final = 100  # requests between two looks at the task
RAMP: Final = 500  # out-of-scope texts go from none to MOST within so many requests
MOST: Final = 0.4
PATIENCE_S: Final = 120.0
PATIENCE: Final = 5_000  # requests

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Texts:
    """What CLINC150 asks."""

    question: dict[str, Any]
    in_scope: list[str]
    out_of_scope: list[str]


def read_texts(path: Path = DATA) -> Texts:
    """The data set, with its 150 intents as the options of one question."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    options = sorted({row["label"] for row in rows} - {"oos"})
    return Texts(
        {
            "type": "choice",
            "instructions": "Which intent does the user express?",
            "criteria": {spoken(option): None for option in options},
        },
        [row["text"] for row in rows if row["label"] != "oos"],
        [row["text"] for row in rows if row["label"] == "oos"],
    )


def rising(texts: Texts, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Texts of which more and more are out of scope, each with an evidence revision.

    There are 200 texts out of scope. Under another revision a text is another request, so they come again.
    """
    inside = zip(texts.in_scope, itertools.repeat(""), strict=False)
    outside = ((text, f"revision-{n}") for n in itertools.count() for text in texts.out_of_scope)
    for number in itertools.count():
        share = MOST * min(1.0, number / RAMP)
        yield next(outside if rng.random() < share else inside)


@dataclass
class Run:
    """The service, and what it answered."""

    service: Service
    question: dict[str, Any]
    sent: int = 0
    states: list[tuple[int, str]] = field(default_factory=list)

    def register(self, min_rows: int) -> None:
        """Register the task."""
        wanted = {"id": TASK, "questions": {"intent": self.question}}
        body = wanted | {"fast_table": {"learn": True, "min_rows": min_rows}}
        status, answer = self.service.post("/v1/tasks", json.dumps(body).encode())
        assert status == 200, answer

    def ask(self, text: str, evidence: str = "") -> Answer:
        """One request."""
        body = {"model": "jev-latest", "state": text, "task": TASK}
        headers = {"X-Precedent-Evidence-Revision": evidence} if evidence else {}
        status, answer = self.service.post("/v1/systemone", json.dumps(body).encode(), headers)
        assert status == 200, answer
        whole = json.loads(answer)
        answer_to: Answer = whole["answers"]["intent"]
        return answer_to | {"source": whole["x_precedent"]["source"]}

    def ask_all(self, *parts: Iterable[str]) -> list[Answer]:
        """Many requests, some at a time: their texts and, if given, their evidence revisions."""
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            answers = [*pool.map(self.ask, *parts)]
        self.sent += len(answers)
        return answers

    def task(self) -> dict[str, Any]:
        """What the service says of the task; a state that it was not in before is printed."""
        shown: dict[str, Any] = json.loads(self.service.send("GET", f"/v1/tasks/{TASK}")[1])
        state = shown["status"]["state"]
        if not self.states or self.states[-1][1] != state:
            self.states.append((self.sent, state))
            print(f"{self.sent:>6} requests: {state:<9} {shown['status']['reason']}", flush=True)
        return shown

    def wait_for(self, *states: str) -> dict[str, Any]:
        """The task once it is in one of some states."""
        until = time.monotonic() + PATIENCE_S
        while (shown := self.task())["status"]["state"] not in states:
            assert time.monotonic() < until, f"{shown['status']} and not {states} within {PATIENCE_S:g} s"
            time.sleep(0.5)
        return shown


def main(arguments: list[str]) -> int:
    """Run it, and print what happens."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description="Learn from traffic.")
    parser.add_argument("--rows", type=int, default=3_000, help="before the first look")
    parser.add_argument("--requests", type=int, default=5_000, help="in scope, while the table serves")
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args(arguments)
    texts, rng = read_texts(), random.Random(wanted.seed)
    rng.shuffle(texts.in_scope)
    rng.shuffle(texts.out_of_scope)
    with service_that_learns() as service:
        run = Run(service, texts.question)
        run.register(wanted.rows)
        run.task()
        learn(run, texts)
        table_answered = serve(run, texts, wanted.requests)
        drift(run, texts, rng)
        check_withdrawn(run, table_answered)
    return 0


def learn(run: Run, texts: Texts) -> None:
    """Ask until a table serves."""
    while (shown := run.task())["status"]["state"] == "learning":
        if (shown["learning"]["rows_had"] or 0) < shown["learning"]["rows_needed"]:
            run.ask_all(taken(texts, PART))
        else:
            time.sleep(0.5)  # the job is looking at them
    run.ask_all(taken(texts, PART))  # it is timed on these
    run.wait_for("active")


def serve(run: Run, texts: Texts, requests: int) -> list[tuple[str, Answer]]:
    """Ask while the table serves; some of what it answered."""
    sources: Counter[str] = Counter()
    kept: list[tuple[str, Answer]] = []
    for _ in range(0, requests, PART):
        part = taken(texts, PART)
        answers = run.ask_all(part)
        run.task()
        sources.update(answer["source"] for answer in answers)
        kept += [pair for pair in zip(part, answers, strict=True) if pair[1]["certified"]]
    time.sleep(2.0)
    shown = run.task()
    seen = shown["versions"][0]["watch"]
    low, high = seen["error"]["interval"]
    saved, total = sources["table"], sources.total()
    checks, errors = seen["error"]["checks"], seen["error"]["errors"]
    print(f"\n{saved} of {total} reads of the engine saved ({saved / total:.1%})")
    print(
        f"live agreement {1 - errors / max(1, checks):.3f} over {checks} checks, between {1 - high:.3f} and "
        f"{1 - low:.3f} with probability 0.95; alpha is {seen['error']['alpha']}"
    )
    print(f"{shown['certificate']['summary']}\n")
    return kept


def drift(run: Run, texts: Texts, rng: random.Random) -> None:
    """Ask more and more out of scope, until the version is withdrawn."""
    began, coming = run.sent, rising(texts, rng)
    while run.task()["status"]["state"] == "active":
        assert run.sent - began < PATIENCE, f"the version serves on after {PATIENCE} requests"
        run.ask_all(*zip(*itertools.islice(coming, PART // 4), strict=True))
    print(f"withdrawn within {run.sent - began} requests of the first that may have been out of scope\n")


def check_withdrawn(run: Run, answered: list[tuple[str, Answer]]) -> None:
    """Ask again what the table answered: nothing of it is replayed."""
    again = run.ask_all([text for text, _ in answered[:200]])
    sources = Counter(answer["source"] for answer in again)
    certified = sum(answer["certified"] for answer in again)
    print(f"asked again, {len(again)} of its decisions came from {dict(sources)}, {certified} certified")
    assert not sources["replay"], "a decision of a withdrawn version was replayed"
    assert not sources["table"], "a withdrawn version answered"


def taken(texts: Texts, n: int) -> list[str]:
    """The next texts in scope."""
    return [texts.in_scope.pop() for _ in range(n)]


@contextmanager
def service_that_learns() -> Iterator[Service]:
    """The service with a refit job in watch mode beside it."""
    with one_cluster(), tempfile.TemporaryDirectory() as folder:
        port = free_port()
        path = Path(folder) / "settings.yaml"
        path.write_text(yaml.safe_dump(settings_for(Path(folder), port, {})))
        service = start(path, port)
        command = [sys.executable, "-m", "jobs.refit", "--watch", "1", "--settings", str(path)]
        job = subprocess.Popen(command, cwd=CHECKOUT)
        try:
            yield service
        finally:
            job.terminate()
            job.wait()
            service.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
