"""What a table and the engine take on this host, and whether the table is worth it here."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import orjson

from core.consulting import EncodeTexts
from core.contract.questions import QuestionReader
from core.engines.base import Engine
from core.errors import PrecedentError
from core.inference import complete, item_of
from core.tables.guard import ENGINE_SAMPLES, TABLE_SAMPLES, Timing, Worth, measure, worth
from core.tables.verdict import Decides
from core.tasks.record import TableRef, TaskRecord

log = logging.getLogger("ray.serve.precedent")

WARM_WAIT_S = 60.0
RETRY_S = 10.0  # after the engine did not answer
ENOUGH_TEXTS: Final = 8
KEPT_TEXTS: Final = 32

Warm = Callable[[float], Awaitable[None]]
Then = Callable[[TaskRecord], Awaitable[None]]
Task = tuple[str, str]  # tenant, id


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Times tables and the engine as requests meet them.

    Attributes:
        engine: answers what a table does not.
        encode: makes the vectors that some tables need.
        warm: waits until `encode` works.
    """

    engine: Engine
    encode: EncodeTexts
    warm: Warm

    async def time_engine(self, record: TaskRecord, texts: Sequence[str]) -> Timing:
        """What the engine takes for states of a task.

        Raises:
            RetryLater: it did not answer.
        """
        question = QuestionReader().read(record.question_id, dict(record.question))
        assert question is not None  # it was valid when it was registered

        async def ask(text: str) -> object:
            items = [item_of(record, text, question, record.tenant)]
            return complete(await self.engine.answer(items), 1)

        return await measure(ask, texts, ENGINE_SAMPLES, time.perf_counter)

    async def time_table(self, table: Decides, texts: Sequence[str]) -> Timing:
        """What a table takes, its sentence vector included.

        Raises:
            RetryLater: nothing makes the vectors that it needs.
        """

        async def ask(text: str) -> object:
            if table.kind == "static":
                return table.decide(text)
            (vector,) = await self.encode([text])
            return table.decide(text, vector)

        if table.kind != "static":
            await self.warm(WARM_WAIT_S)
        return await measure(ask, texts, TABLE_SAMPLES, time.perf_counter)


@dataclass(frozen=True, slots=True)
class _Waiting:
    record: TaskRecord
    table: Decides
    then: Then
    texts: deque[str]


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured on this host."""

    table: Timing
    engine: Timing

    def worth(self, ref: TableRef) -> Worth:
        """What the table saves, as much as its certificate covers."""
        return worth(self.table, self.engine, ref.certificate.certified_share)

    def public(self, ref: TableRef) -> dict[str, Any]:
        """What callers see."""
        return {"table": asdict(self.table), "engine": asdict(self.engine), **asdict(self.worth(ref))}


class HostTimings:
    """Times each version before it serves here, on texts of the traffic, once per node and engine.

    What was measured is kept in a file of the node, so that a restart need not wait for traffic or an engine.

    Args:
        stopwatch: measures.
        folder: where the files are.
        clock: Unix seconds.
    """

    def __init__(
        self,
        stopwatch: Stopwatch,
        folder: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stopwatch = stopwatch
        self._folder = folder
        self._clock = clock
        self._known: dict[str, Measured] = {}  # by the digest of the table
        self._waiting: dict[Task, _Waiting] = {}
        self._not_before: dict[Task, float] = {}
        self._running: dict[Task, asyncio.Task[None]] = {}

    def measured(self, ref: TableRef) -> Measured | None:
        """What is known of a table on this host."""
        found = self._known.get(ref.object)
        if found is None:
            found = _read(self._path(ref))
            if found is not None:
                self._known[ref.object] = found
        return found

    def want(self, record: TaskRecord, table: Decides, then: Then) -> None:
        """Time the version of `record` as soon as there are texts, and call `then`."""
        key = record.tenant, record.id
        texts = self._waiting[key].texts if key in self._waiting else deque(maxlen=KEPT_TEXTS)
        self._waiting[key] = _Waiting(record, table, then, texts)

    def timed_elsewhere(self) -> list[TaskRecord]:
        """Records whose versions were to be timed here, and were timed by another process of this host."""
        waiting = [one.record for one in self._waiting.values()]
        return [one for one in waiting if one.table is not None and self.measured(one.table) is not None]

    def forget(self, tenant: str, task_id: str) -> None:
        """Nothing of a task is to be timed any more."""
        self._waiting.pop((tenant, task_id), None)
        self._not_before.pop((tenant, task_id), None)

    def offer(self, tenant: str, task_id: str, text: str) -> None:
        """A text of the traffic; kept in memory while something is to be timed, and no longer."""
        key = tenant, task_id
        waiting = self._waiting.get(key)
        if waiting is None:
            return
        waiting.texts.append(text)
        if len(waiting.texts) < ENOUGH_TEXTS or key in self._running:
            return
        if self._clock() >= self._not_before.get(key, 0.0):
            self._running[key] = asyncio.create_task(self._time(key))

    @property
    def running(self) -> list[asyncio.Task[None]]:
        """What is being timed now."""
        return [*self._running.values()]

    async def drain(self) -> None:
        """End what is under way."""
        running = self.running
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _time(self, key: Task) -> None:
        waiting = self._waiting[key]
        record, texts = waiting.record, [*waiting.texts]
        ref = record.table
        assert ref is not None  # or there would be nothing to time
        try:
            measured = Measured(
                await self._stopwatch.time_table(waiting.table, texts),
                await self._stopwatch.time_engine(record, texts),
            )
            self._known[ref.object] = measured
            log.warning(
                "version %d of task %r: on this host an answer takes %.3f ms by the table and %.3f ms by the "
                "engine; it saves %.1f %% of the mean time",
                ref.version,
                record.id,
                measured.table.mean_s * 1e3,
                measured.engine.mean_s * 1e3,
                measured.worth(ref).least * 100,
            )
            await asyncio.to_thread(_write, self._path(ref), measured)
            if self._waiting.get(key) is waiting:
                self.forget(*key)
            await waiting.then(record)
        except (PrecedentError, OSError) as error:
            self._not_before[key] = self._clock() + RETRY_S
            log.warning("version %d of task %r cannot be timed yet: %s", ref.version, record.id, error)
        finally:
            del self._running[key]

    def _path(self, ref: TableRef) -> Path:
        engine = blake2b(self._stopwatch.engine.fingerprint.encode(), digest_size=8).hexdigest()
        return self._folder / f"{ref.object}.{engine}.timing"


def _read(path: Path) -> Measured | None:
    try:
        fields = orjson.loads(path.read_bytes())
        return Measured(Timing(**fields["table"]), Timing(**fields["engine"]))
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _write(path: Path, measured: Measured) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}")
    beside.write_bytes(orjson.dumps({"table": asdict(measured.table), "engine": asdict(measured.engine)}))
    beside.rename(path)
