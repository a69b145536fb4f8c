"""How soon a learned table is withdrawn when the texts change, and how often for nothing, over many seeds.

For each seed: a table is learned from CLINC150 as the embedded engine answers it, with the parts that serve
(the Decider, the Watcher, the refit) and without HTTP. Then two lives begin. In one, in-scope texts that the
table was not fitted on are asked, again and again under other evidence revisions. In the other, texts out of
scope rise from 0 to 40 % of the traffic within 500 requests. The engine's answers are computed once.

`python -m benchmarks.watching [--seeds N] [--requests N] [--rows N]`
"""

import argparse
import asyncio
import copy
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.learning import RAMP, TASK, Texts, read_texts, rising
from core.cache.cache import DecisionCache
from core.cache.modes import Mode, view
from core.cache.retention import Retention
from core.cache.stores.memory import MemoryStore
from core.consulting import differs
from core.contract.questions import Question, QuestionReader
from core.contract.request import Contract
from core.engines.base import Item, Limits, Reading
from core.engines.embedded import EmbeddedModel
from core.identity import Identity
from core.routing import Decider, Tables, no_vectors
from core.tasks.learning import RowStudent, row_student
from core.tasks.lesson import Wanted
from core.tasks.record import FastTableSettings, State
from core.tasks.refitter import Refitter, learners
from core.tasks.registration import read_registration
from core.tasks.registry import Registered, Registry
from core.tasks.stores.memory import MemoryTaskStore
from deployments.fitting import Means
from deployments.lessons import teach_remotely
from deployments.records import Records
from deployments.row_buffer import RowBuffer
from deployments.row_maker import RowMaker
from deployments.spot_checks import SpotChecks
from deployments.tables_on_node import TablesOnNode
from deployments.task_sync import Host, TaskSync
from deployments.teaching import Teaching
from deployments.tending import suspend
from deployments.timing import HostTimings, Stopwatch
from deployments.watcher import Watcher
from jobs.models import MODELS_DIR, prepare

FLUSH: Final = 100  # requests between two times at which a Router tells what it saw
LONGEST: Final = 5_000  # requests that may be out of scope

Pair = tuple[str, str]  # text, evidence revision


class Recorded:
    """The embedded engine, each of whose answers is computed once."""

    name = "recorded"
    limits = Limits(max_tokens=512)
    batch_invariant = True

    def __init__(self, model: EmbeddedModel) -> None:
        self.fingerprint = model.fingerprint
        self.delay_s = 0.0  # of a call, while a table is timed
        self._model = model
        self._known: dict[str, Reading | Exception] = {}

    def reading(self, item: Item) -> Reading | Exception:
        """What it says of an item; there is one question."""
        found = self._known.get(item.state)
        if found is None:
            (found,) = self._model.read([item])
            self._known[item.state] = found
        return found

    async def answer(self, items: Sequence[Item]) -> list[Reading | Exception]:
        """Answer each item, in order."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        return [self.reading(item) for item in items]

    async def check_health(self) -> None:
        """Always well."""

    async def close(self) -> None:
        """Nothing to free."""


class Life:
    """A Router without HTTP."""

    def __init__(self, engine: Recorded, store: MemoryTaskStore, folder: Path) -> None:
        self.engine, self.store = engine, store
        self._registry = Registry()
        stopwatch = Stopwatch(engine, no_vectors, _no_encoder)
        self._timings = HostTimings(stopwatch, folder)
        host = Host(None, engine.fingerprint)
        cache = DecisionCache(MemoryStore(max_entries=200_000), Retention())
        self.sync = TaskSync(
            store, self._registry, TablesOnNode(folder, store), host, self._timings, _keep_decisions
        )
        records = Records(store, self.sync)
        self.teaching = Teaching(
            records, Means(teach_remotely, stopwatch, Wanted("static", "english", "", ""))
        )

        async def withdraw(tenant: str, task_id: str, version: int, why: str) -> None:
            await suspend(records, tenant, task_id, version, why)

        self.watcher = Watcher(
            store,
            self._registry,
            RowMaker(MODELS_DIR, no_vectors, engine.fingerprint),
            RowBuffer(store, 100_000, 100_000),
            SpotChecks(engine, 5.0),
            self._timings,
            suspend=withdraw,
        )
        self._decider = Decider(
            Contract(("jev-latest",)),
            engine,
            view(cache, Mode.ON),
            time.time,
            tables=Tables(self._registry, watch=self.watcher.see),
        )

    @property
    def task(self) -> Registered:
        """The task as it is served."""
        found = self._registry.get("default", TASK)
        assert found is not None  # it was registered
        return found

    async def ask_all(self, pairs: Iterable[Pair]) -> int:
        """Ask until the version that serves is withdrawn; how many requests it took, or there were."""
        count = 0
        for text, evidence in pairs:
            lane = self._decider.lane(Identity("default", "benchmark", evidence))
            body = orjson.dumps({"model": "jev-latest", "state": text, "task": TASK})
            await self._decider.decide(body, lane)
            count += 1
            if count % FLUSH == 0:
                await self.watcher.drain()
                if self.task.record.state is State.SUSPENDED:
                    return count
        await self.watcher.drain()
        return count

    async def until_timed(self, texts: Iterable[str]) -> None:
        """Have a new version timed."""
        self.engine.delay_s = 0.005
        await self.ask_all((text, "timing") for text in texts)
        await asyncio.gather(*self._timings.running)
        self.engine.delay_s = 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one seed."""

    seed: int
    covered: float  # share of unseen in-scope texts that the table answers
    error: float  # among them
    checks: int  # that the watch made of in-scope answers
    checked_error: float  # share of them that the engine gave differently
    alarm_after: int | None  # in-scope requests until an alarm; None without
    why: str
    withdrawn_after: int | None  # requests that may be out of scope


def main(arguments: list[str]) -> int:
    """Run it, and print what happened."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watching", description="Watch tables.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=50_000, help="in scope, of each seed")
    parser.add_argument("--rows", type=int, default=3_000, help="that a table is learned from")
    wanted = parser.parse_args(arguments)
    engine = Recorded(EmbeddedModel.load(prepare(MODELS_DIR)))
    found = []
    for seed in range(wanted.seeds):
        with tempfile.TemporaryDirectory() as folder:
            one = asyncio.run(_seed(engine, seed, wanted.rows, wanted.requests, Path(folder)))
        print(one, flush=True)
        found.append(one)
    delays = [one.withdrawn_after for one in found if one.withdrawn_after is not None]
    alarms = sum(one.alarm_after is not None for one in found)
    print(
        f"\n{alarms} of {len(found)} in-scope lives of {wanted.requests} requests had an alarm; with texts "
        f"out of scope {len(delays)} of {len(found)} were withdrawn within {LONGEST}, the median after "
        f"{statistics.median(delays):g}, of which {RAMP} are the rise to 40 %"
    )
    return 0


async def _seed(engine: Recorded, seed: int, rows: int, requests: int, folder: Path) -> Found:
    texts, rng = read_texts(), random.Random(seed)
    rng.shuffle(texts.in_scope)
    rng.shuffle(texts.out_of_scope)
    store = await _learned(engine, texts, rows, folder)
    unseen = texts.in_scope[rows + 100 :]
    quiet, drifting = Life(engine, store, folder), Life(engine, copy.deepcopy(store), folder)
    for life in (quiet, drifting):
        await life.sync.refresh()
    covered, error = _truth(engine, quiet, unseen)
    again = ((text, f"revision-{n}") for n in itertools.count() for text in unseen)
    asked = await quiet.ask_all(itertools.islice(again, requests))
    await quiet.sync.refresh()
    bets = quiet.sync.watches["default", TASK].versions[1].bets
    alarmed = quiet.task.record.state is State.SUSPENDED
    texts.in_scope[:] = unseen
    taken = await drifting.ask_all(itertools.islice(rising(texts, rng), LONGEST))
    withdrawn = drifting.task.record.state is State.SUSPENDED
    return Found(
        seed,
        round(covered, 3),
        round(error, 4),
        bets.checks,
        round(bets.errors / max(1, bets.checks), 4),
        asked if alarmed else None,
        quiet.task.record.reason if alarmed else "",
        taken if withdrawn else None,
    )


async def _learned(engine: Recorded, texts: Texts, rows: int, folder: Path) -> MemoryTaskStore:
    """A store with a table that was learned from some texts and timed."""
    life = Life(engine, MemoryTaskStore(), folder)
    body = {"id": TASK, "questions": {"intent": texts.question}}
    wanted = read_registration(body | {"fast_table": {"learn": True, "min_rows": rows // 2}})
    await life.teaching.register("default", wanted, None)
    await life.ask_all((text, "") for text in texts.in_scope[:rows])

    def student_of(settings: FastTableSettings) -> RowStudent:
        return row_student(settings, MODELS_DIR)

    refitter = Refitter(life.store, student_of, engine.fingerprint, time.time)
    (record,) = await learners(life.store)
    look = await refitter.look(record, lambda share: None)
    assert look.published, look.said
    await life.sync.refresh()
    await life.until_timed(texts.in_scope[rows : rows + 100])
    return life.store


def _truth(engine: Recorded, life: Life, texts: Sequence[str]) -> tuple[float, float]:
    """What share of texts the table answers, and how many of those the engine answers differently."""
    record, table = life.task.record, life.task.table
    assert table is not None  # it serves
    assert record.table is not None
    question = _question(record.question_id, record.question)
    answered = wrong = 0
    for text in texts:
        verdict = table.decide(text)
        if record.table.certificate.covers(verdict.confidence):
            reading = engine.reading(Item(text, question))
            assert isinstance(reading, Reading)
            answered += 1
            wrong += differs(question, 0, verdict.probabilities, reading.probabilities)
    return answered / len(texts), wrong / max(1, answered)


def _question(question_id: str, raw: Any) -> Question:  # noqa: ANN401
    question = QuestionReader().read(question_id, dict(raw))
    assert question is not None  # it was registered
    return question


async def _no_encoder(wait_s: float) -> None:
    raise AssertionError(f"no encoder is needed, and one was waited for {wait_s} s")


async def _keep_decisions(tenant: str, table_version: str) -> None:
    """Nothing is asked twice here, so there is nothing to revoke."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
