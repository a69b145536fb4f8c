"""What a Router learns from its own decisions: rows for the next table, and how the present one does."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable

from core.consulting import ENCODER_UNAVAILABLE, EXPLORE, Heard, Settled, differs, version_of
from core.contract.answers import top_option
from core.contract.questions import Question
from core.engines.base import Reading
from core.errors import ArtefactMismatch, SettingsError, StoreUnavailable, TaskConflict
from core.inference import item_of
from core.tasks import watch
from core.tasks.record import TableRef, TaskRecord
from core.tasks.registration import option_names
from core.tasks.registry import Registry
from core.tasks.rows import Drawn, is_drawn, series_of
from core.tasks.selection import ASKED_ALL_THE_SAME, OPTIONS_CHANGED, QUESTION_CHANGED
from core.tasks.stores.base import TaskStore
from core.tasks.watch import Sightings
from deployments.row_buffer import RowBuffer
from deployments.row_maker import Raw, RowMaker
from deployments.spot_checks import SpotChecks
from deployments.timing import HostTimings

log = logging.getLogger("ray.serve.precedent")

MAX_HELD = 100_000  # sightings of one version that wait for the store
HOLD_TEXT_S = 60.0  # for a student that needs a sentence vector, while no encoder answers
ATTEMPTS = 5  # at telling, while other Routers tell, too

Task = tuple[str, str]  # tenant, id
Suspend = Callable[[str, str, int, str], Awaitable[None]]  # tenant, task, version, why


class Watcher:
    """Sees every first decision about a registered question.

    Args:
        store: of the tasks.
        registry: the tasks that are served here.
        maker: makes rows.
        rows: takes them to the store.
        checks: asks the engine again.
        timings: times new versions on texts of the traffic.
        suspend: withdraws a version.
        clock: Unix seconds.
    """

    def __init__(  # noqa: PLR0913  each is a part of its own
        self,
        store: TaskStore,
        registry: Registry,
        maker: RowMaker,
        rows: RowBuffer,
        checks: SpotChecks,
        timings: HostTimings,
        *,
        suspend: Suspend,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._registry = registry
        self._maker = maker
        self._rows = rows
        self._checks = checks
        self._timings = timings
        self._suspend = suspend
        self._clock = clock
        self._raw: defaultdict[Task, list[Raw]] = defaultdict(list)
        self._seen: defaultdict[Task, dict[int, Sightings]] = defaultdict(dict)
        self._one_at_a_time = asyncio.Lock()
        self._raws = 0  # how many there are
        self._unmade: set[str] = set()  # why rows could not be made, told once

    def see(self, settled: Settled) -> None:
        """Take note of a decision. Takes microseconds."""
        for name, one in settled.heard.items():
            record, question = one.part.task.record, settled.questions[name]
            reading = settled.readings.get(name)
            self._timings.offer(record.tenant, record.id, settled.state)
            if one.verdict is not None and record.table is not None:
                self._take_verdict(one, record.table, settled, question, reading)
            if reading is not None and one.reason not in (OPTIONS_CHANGED, QUESTION_CHANGED):
                self._take_row(record, settled, question, _drawn(one), reading)

    async def keep_up(self, every_s: float) -> None:
        """Flush until cancelled, whatever happens."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.flush()
            except Exception:  # nobody waits for this loop: it would end unseen
                log.exception("rows and sightings could not be told")

    async def flush(self) -> None:
        """Bring the store what was seen, and withdraw what no longer deserves to serve."""
        async with self._one_at_a_time:
            raws, self._raw, self._raws = self._raw, defaultdict(list), 0
            for task, some in raws.items():
                await self._make(task, some)
            for series in self._rows.series:
                if self._registry.get(series.tenant, series.task) is None:  # it was removed
                    self._rows.drop(series)
            if not await self._rows.flush():
                return  # each further call would wait for a store that is away
            for task in {*self._seen, *self._rows.lost}:
                if not await self._tell(task):
                    return

    async def drain(self) -> None:
        """End the checks under way, and flush."""
        await self._checks.drain()
        await self.flush()

    def _take_verdict(
        self, one: Heard, table: TableRef, settled: Settled, question: Question, reading: Reading | None
    ) -> None:
        record, verdict = one.part.task.record, one.verdict
        assert verdict is not None  # the caller looked
        seen = self._sightings(record, table.version)
        seen.asked += 1
        if table.tail is not None and len(seen.low) < MAX_HELD:
            seen.low.append(table.tail.holds(verdict.confidence))
        if not table.certificate.covers(verdict.confidence):
            return
        seen.answered += 1
        top = top_option(option_names(question), verdict.probabilities)
        seen.answers[top] = seen.answers.get(top, 0) + 1
        if reading is not None:
            self._compare(record, table, question, verdict.probabilities, reading)
        elif one.distribution is not None:
            self._check(record, table, settled, question, one.distribution)

    def _check(
        self,
        record: TaskRecord,
        table: TableRef,
        settled: Settled,
        question: Question,
        served: tuple[float, ...],
    ) -> None:
        """Ask the engine about an answer that the table gave, if the lot says so."""
        assert record.fast_table is not None  # or there would be no table
        if not is_drawn(settled.key, f"spot check {version_of(record, table)}", record.fast_table.spot_check):
            return

        def tell(reading: Reading) -> None:
            self._compare(record, table, question, served, reading)
            self._take_row(record, settled, question, Drawn.SPOT_CHECK, reading)

        self._checks.ask(item_of(record, settled.state, question, settled.tenant), tell)

    def _compare(
        self,
        record: TaskRecord,
        table: TableRef,
        question: Question,
        served: tuple[float, ...],
        reading: Reading,
    ) -> None:
        # The judge of a version is what that version served, whatever serves by now.
        seen = self._sightings(record, table.version)
        if len(seen.wrong) < MAX_HELD:
            level_error = table.certificate.level_error
            seen.wrong.append(differs(question, level_error, served, reading.probabilities))

    def _take_row(
        self, record: TaskRecord, settled: Settled, question: Question, drawn: Drawn, reading: Reading
    ) -> None:
        if not record.learns:
            return
        task = record.tenant, record.id
        if self._raws >= self._rows.max_pending:
            self._rows.lost[task] += 1
            return
        self._raws += 1
        self._raw[task].append(
            Raw(record, question, settled.key, settled.state, drawn, reading.probabilities, self._clock())
        )

    def _sightings(self, record: TaskRecord, version: int) -> Sightings:
        return self._seen[record.tenant, record.id].setdefault(version, Sightings())

    async def _make(self, task: Task, raws: list[Raw]) -> None:
        served = self._registry.get(*task)
        if served is None:  # it was removed, and its rows with it
            return
        try:
            rows = await self._maker.make(raws)
        except (SettingsError, ArtefactMismatch) as error:
            if str(error) not in self._unmade:
                self._unmade.add(str(error))
                log.error("task %r learns nothing on this host: %s", task[1], error)
            self._rows.lost[task] += len(raws)
            return
        for raw, row in zip(raws, rows, strict=True):
            if row is not None:
                self._rows.add(series_of(raw.record, row.drawn.series), raw.key.hex(), row.encode())
            elif self._clock() < raw.at + HOLD_TEXT_S and self._raws < self._rows.max_pending:
                self._raws += 1
                self._raw[task].append(raw)
            else:
                self._rows.lost[task] += 1

    async def _tell(self, task: Task) -> bool:
        """Add what was seen here to what all have seen, and act on it; False when the store is away."""
        served = self._registry.get(*task)
        if served is None:
            self._seen.pop(task, None)
            self._rows.lost.pop(task, None)
            return True
        record = served.record
        for _ in range(ATTEMPTS):
            try:
                entry = await self._store.get(record.tenant, watch.PREFIX + record.id)
            except StoreUnavailable:
                return False  # it is told next time
            lost = self._rows.lost.pop(task, 0)
            more = self._seen.pop(task, {})
            known = watch.decode(None if entry is None else entry.value)
            whole = known.after(more, record, lost)
            try:
                expected = 0 if entry is None else entry.version
                await self._store.put(
                    record.tenant, watch.PREFIX + record.id, whole.encode(), expected, self._clock()
                )
            except TaskConflict:
                self._put_back(task, more, lost)
                continue
            except StoreUnavailable:
                # It may have been written. Twice told, an error would count twice: better not at all.
                self._put_back(task, {}, lost)
                return False
            for version, why in whole.alarms(record).items():
                await self._suspend(record.tenant, record.id, version, why)
            return True
        return True  # others tell all the time: the next flush tries again

    def _put_back(self, task: Task, more: dict[int, Sightings], lost: int) -> None:
        if lost:
            self._rows.lost[task] += lost
        for version, earlier in more.items():
            later = self._seen[task].pop(version, Sightings())
            self._seen[task][version] = earlier.and_then(later)


def _drawn(one: Heard) -> Drawn:
    """How the engine came to answer a question of a task."""
    if one.reason == EXPLORE:
        return Drawn.EXPLORE
    if one.reason in ASKED_ALL_THE_SAME:
        return Drawn.TRAFFIC
    if one.verdict is not None or one.reason == ENCODER_UNAVAILABLE:
        return Drawn.PASSED
    return Drawn.TRAFFIC
