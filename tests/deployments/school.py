"""A Router with tasks, in this process: a toy language to learn, and a fit that a test can hold up or end."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from core.cache.fences import Scope
from core.cache.stores.base import Store
from core.engines.fake import FakeEngine
from core.routing import Tables
from core.tables.students import StaticStudent, Student
from core.tables.table import Table
from core.tables.tokens import Tokens
from core.tasks.learning import RowStudent
from core.tasks.lesson import Lesson, Wanted
from core.tasks.record import FastTableSettings
from core.tasks.refitter import Look, Refitter, learners
from core.tasks.registry import Registry
from core.tasks.stores.base import TaskStore
from core.tasks.stores.memory import MemoryTaskStore
from core.tasks.training import recertify, train
from deployments.auth import Callers, Open
from deployments.bodies import BodyLimits
from deployments.fitting import Means
from deployments.http import HttpApp
from deployments.lessons import Event
from deployments.records import Records
from deployments.row_buffer import RowBuffer
from deployments.row_maker import RowMaker
from deployments.spot_checks import SpotChecks
from deployments.tables_on_node import TablesOnNode
from deployments.task_routes import TaskLimits, task_routes
from deployments.task_sync import Host, TaskSync
from deployments.teaching import Teaching
from deployments.tending import Tending, suspend
from deployments.timing import HostTimings, Stopwatch
from deployments.watcher import Watcher
from tests.deployments.asgi import JSON_HEADERS, Reply, call
from tests.deployments.serving import Serving
from tests.toy_language import examples, static_vectors, tokenizer_json

TOPICS = ("card", "refund", "address")
QUESTION = {"type": "choice", "instructions": "What is it about?", "criteria": dict.fromkeys(TOPICS)}
MAX_BYTES = 10_000_000
WANTED = Wanted("static", "english", "", "")


def labelled(n: int = 120, seed: int = 0, question: Any = QUESTION) -> list[dict[str, Any]]:
    """So many examples, a third about each topic."""
    texts, labels = examples((n // 3,) * 3, seed)
    return [
        {"request": {"state": text, "questions": {"topic": question}}, "answer": TOPICS[label]}
        for text, label in zip(texts, labels, strict=True)
    ]


def registration(task_id: str = "mail", n: int = 240, **members: Any) -> dict[str, Any]:
    """A body of `POST /v1/tasks`."""
    return {"id": task_id, "examples": labelled(n), "fast_table": {"min_saving": 0.0}} | members


async def learn_here(lesson: Lesson, wanted: Wanted) -> AsyncIterator[Event]:
    """Learn without a process of its own."""

    def vectors(texts: Any) -> Any:
        return np.zeros((len(texts), 8), np.float32)

    yield "progress", 0.5
    if wanted.recertify is not None:
        table, fit = wanted.recertify
        yield "done", recertify(lesson, Table.of(table), fit, vectors)
    else:
        students = {"static": StaticStudent(static_vectors())}
        yield "done", train(lesson, students, vectors, lambda share: None)


class ToyRowMaker(RowMaker):
    """Makes rows of the toy language."""

    def _tokens_of(self, wanted: FastTableSettings) -> Tokens:
        return Tokens(tokenizer_json())


@dataclass
class School:
    """What a Router with tasks is made of."""

    folder: Path
    store: TaskStore = field(default_factory=MemoryTaskStore)
    callers: Callers = field(default_factory=Open)
    wait_s: float = 60.0
    read_only: bool = False
    max_fits: int = 2
    max_examples: int = 1_000
    max_rows: int = 50_000
    max_pending: int = 10_000
    decisions: Store | None = None  # None: one of its own
    # Slower than any table, so that tables are kept.
    engine: FakeEngine = field(default_factory=lambda: FakeEngine(delay_s=0.002))
    now: float = 1_000.0

    def __post_init__(self) -> None:
        self.registry = Registry()
        self.gate: asyncio.Event | None = None
        self.ends: Exception | None = None  # what the fit ends with instead
        self.taught: list[tuple[Lesson, Wanted]] = []
        stopwatch = Stopwatch(self.engine, self._no_vectors, self._warm)
        self.timings = HostTimings(stopwatch, self.folder, self._clock)
        self.sync = TaskSync(
            self.store,
            self.registry,
            TablesOnNode(self.folder, self.store),
            Host(None, self.engine.fingerprint),
            self.timings,
            self._revoke,
            self._clock,
        )
        records = self.records = Records(self.store, self.sync, self._clock)
        self.teaching = Teaching(records, Means(self._teach, stopwatch, WANTED, self.max_fits))
        self.rows = RowBuffer(self.store, self.max_pending, self.max_rows)
        self.watcher = Watcher(
            self.store,
            self.registry,
            ToyRowMaker(self.folder, self._no_vectors, self.engine.fingerprint),
            self.rows,
            SpotChecks(self.engine, 5.0),
            self.timings,
            suspend=self.suspend,
            clock=self._clock,
        )
        self.tending = Tending(records, self.watcher.flush, self.max_rows)
        self.serving = Serving(
            engine=self.engine,
            callers=self.callers,
            clock=self._clock,
            tables=Tables(self.registry, watch=self.watcher.see),
        )
        if self.decisions is not None:
            self.serving.store = self.decisions
        self.app = self._app()

    async def send(self, method: str, path: str, value: Any = None, *headers: tuple[bytes, bytes]) -> Reply:
        """Send a request; `path` may end in a query."""
        path, _, query = path.partition("?")
        body = value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
        return await call(
            self.app, body, method=method, path=path, query=query.encode(), headers=[*JSON_HEADERS, *headers]
        )

    async def register(self, *headers: tuple[bytes, bytes], **members: Any) -> Reply:
        """Register a task."""
        return await self.send("POST", "/v1/tasks", registration(**members), *headers)

    async def ask(self, state: str, *headers: tuple[bytes, bytes], **members: Any) -> Reply:
        """Ask the registered question."""
        asked = {"model": "jev-latest", "state": state, "questions": {"topic": QUESTION}}
        return await self.send("POST", "/v1/systemone", asked | members, *headers)

    async def learn(self, task_id: str = "mail", **fast_table: Any) -> Reply:
        """Register a task that learns from traffic."""
        wanted = {"learn": True, "min_rows": 200, "min_saving": 0.0} | fast_table
        body = {"id": task_id, "questions": {"topic": QUESTION}, "fast_table": wanted}
        return await self.send("POST", "/v1/tasks", body)

    async def ask_all(self, texts: Iterable[str]) -> list[Mapping[str, Any]]:
        """Ask the registered question of each text; the answers about the topic, with their sources."""
        replies = [(await self.ask(text)).json for text in texts]
        return [reply["answers"]["topic"] | reply["x_precedent"] for reply in replies]

    async def refit(self) -> list[Look]:
        """What `jobs.refit --all` does."""
        await self.watcher.flush()
        refitter = self.refitter()
        looks = [await refitter.look(record, lambda share: None) for record in await learners(self.store)]
        await self.sync.refresh()
        return looks

    def refitter(self, student: Student | None = None) -> Refitter:
        """What a job has."""
        chosen = RowStudent(student or StaticStudent(static_vectors()), Tokens(tokenizer_json()).digest)
        return Refitter(self.store, lambda _: chosen, self.engine.fingerprint, self._clock)

    async def suspend(self, tenant: str, task_id: str, version: int, why: str) -> None:
        """Withdraw a version."""
        await suspend(self.records, tenant, task_id, version, why)

    async def until_timed(self) -> None:
        """Wait until nothing is being timed any more."""
        await asyncio.gather(*self.timings.running)

    async def show(self, task_id: str = "mail") -> Mapping[str, Any]:
        """What the service says of a task."""
        shown: Mapping[str, Any] = (await self.send("GET", f"/v1/tasks/{task_id}")).json
        return shown

    def _app(self) -> HttpApp:
        limits = TaskLimits(
            BodyLimits(MAX_BYTES, 60.0), self.max_examples, 1_000, self.max_rows, self.wait_s, self.read_only
        )
        routes = task_routes(
            self.registry,
            self.teaching,
            self.tending,
            self.timings,
            self.callers,
            limits,
            {"fingerprint": "fake-0"},
            clock=self._clock,
        )
        self.serving.more_routes = routes
        return self.serving.app()

    async def _revoke(self, tenant: str, table_version: str) -> None:
        await self.serving.cache.purge(Scope(tenant=tenant, table_version=table_version), self.now)

    async def _teach(self, lesson: Lesson, wanted: Wanted) -> AsyncIterator[Event]:
        self.taught.append((lesson, wanted))
        async for event in learn_here(lesson, wanted):
            if event[0] == "done":
                if self.gate is not None:
                    await self.gate.wait()
                if self.ends is not None:
                    raise self.ends
            yield event

    def _clock(self) -> float:
        return self.now

    @staticmethod
    async def _no_vectors(texts: Any) -> Any:
        raise AssertionError("no vector is needed")

    @staticmethod
    async def _warm(_wait_s: float) -> None:
        raise AssertionError("no encoder is needed")
