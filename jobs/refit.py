"""Learn tables from the rows of traffic: `python -m jobs.refit --all`, or with `--watch` as long as it runs.

Looks at each task with `fast_table.learn` that has enough new rows: fits on old and new ones, certifies on
rows that no look used before, and publishes the next version, which every Router times before it serves it.
A candidate that cannot be certified changes nothing; why is said here and by `GET /v1/tasks/{id}`. Two jobs
at once do no harm: one of them publishes.

As a Ray job: `ray job submit --working-dir . -- python -m jobs.refit --all --home "$PWD"`. Ray runs a job in
a copy of the folder, so the job is told where the checkout with the models, and with the SQLite file if there
is one, really is.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from config.paths import CHECKOUT, absolute_store
from config.reading import read_app_config
from core.engines.registry import describe
from core.errors import ArtefactMismatch, PrecedentError, SettingsError, StoreUnavailable
from core.tasks.learning import RowStudent, row_student
from core.tasks.record import FastTableSettings, TaskRecord
from core.tasks.refitter import Refitter, learners
from core.tasks.stores import open_task_store
from core.tasks.stores.base import TaskStore
from core.tasks.stores.sqlite import SqliteTaskStore

NICENESS = 10  # the CPU is for those who serve

Say = Callable[[str], None]


def main(arguments: list[str]) -> int:
    """Run the job; 0, 1 when the store did not answer, 2 when it was asked for something impossible."""
    wanted = _parser().parse_args(arguments)
    try:
        return asyncio.run(_run(wanted))
    except (SettingsError, ArtefactMismatch) as error:
        print(error, file=sys.stderr)
        return 2
    except PrecedentError as error:
        print(error, file=sys.stderr)
        return 1


class Job:
    """Looks at tasks, once or again and again.

    Args:
        store: of the tasks.
        refitter: looks at one.
        say: told what happens.
    """

    def __init__(self, store: TaskStore, refitter: Refitter, say: Say) -> None:
        self._store = store
        self._refitter = refitter
        self._say = say
        self._not_before: dict[tuple[str, str], tuple[int, int]] = {}  # used, rows to wait for

    async def once(self, task: str | None = None, tenant: str | None = None) -> int:
        """Look at the tasks that have enough new rows; return how many there were to look at.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        records = [
            one
            for one in await learners(self._store)
            if task in (None, one.id) and tenant in (None, one.tenant)
        ]
        for record in records:
            await self._look(record)
        return len(records)

    async def watch(self, every_s: float) -> None:
        """Look again and again, until cancelled."""
        failing = False
        while True:
            try:
                await self.once()
                failing = False
            except StoreUnavailable as error:
                if not failing:
                    self._say(f"waiting for the store: {error}")
                failing = True
            await asyncio.sleep(every_s)

    async def _look(self, record: TaskRecord) -> None:
        assert record.fast_table is not None  # it learns
        key = record.tenant, record.id
        used = 0 if record.learned is None else record.learned.used
        fresh = await self._refitter.fresh(record)
        needed = record.fast_table.min_rows
        before = self._not_before.get(key)
        if before is not None and before[0] == used:
            needed = max(needed, before[1])
        if fresh < needed:
            if before is None or before[0] != used:
                self._say(f"{record.id}: {fresh} new rows, and {needed} are needed")
                self._not_before[key] = (used, needed)
            return
        self._say(f"{record.id}: looking at {fresh} new rows")
        look = await self._refitter.look(record, lambda share: None)
        self._say(f"{look.task}: {look.said}")
        if look.missing:
            # Some of the new rows may not certify: as many others must come before it is worth another look.
            self._not_before[key] = (used, fresh + look.missing)


async def _run(wanted: argparse.Namespace) -> int:
    config = read_app_config(wanted.settings or wanted.home / "serve_config.yaml")
    url = wanted.store or config.tasks.store or config.store
    models_dir = wanted.home / config.engine.models_dir
    spec = config.engine.spec(wanted.home)
    where = absolute_store(url, wanted.home)
    store = open_task_store(where)
    if isinstance(store, SqliteTaskStore) and not store.path.exists():
        problem = f"{where}: no task was ever kept there; name the right one, or the right --home"
        raise SettingsError("--store", problem)

    def student_of(settings: FastTableSettings) -> RowStudent:
        return row_student(settings, models_dir)

    job = Job(store, Refitter(store, student_of, describe(spec).fingerprint, time.time), _say)
    try:
        if wanted.watch is not None:
            await _until_told(asyncio.create_task(job.watch(wanted.watch)))
            return 0
        found = await job.once(wanted.task, wanted.tenant)
        if not found:
            which = "no task" if wanted.task is None else f"no task {wanted.task!r}"
            hint = "register one with fast_table.learn, or name its --tenant, or the right --store or --home"
            print(f"{which} learns from traffic in {where}; {hint}", file=sys.stderr)
            return 2 if wanted.task is not None else 0
        return 0
    finally:
        await store.close()


async def _until_told(task: asyncio.Task[None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 86_400.0:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.1 and 86400 seconds")
    return seconds


def _say(text: str) -> None:
    print(text, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jobs.refit", description="Learn tables from traffic.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--task", metavar="ID", help="look at one task, of every tenant that has one")
    which.add_argument("--all", action="store_true", help="look at every task that learns")
    which.add_argument(
        "--watch",
        nargs="?",
        const=5.0,
        type=_seconds,
        metavar="SECONDS",
        help="look at every task again and again, so often (5)",
    )
    parser.add_argument("--tenant", help="of --task")
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help="the app's (serve_config.yaml of --home)"
    )
    parser.add_argument("--store", metavar="URL", help="where the tasks are; the settings say, when left out")
    parser.add_argument(
        "--home",
        type=Path,
        default=CHECKOUT,
        metavar="DIR",
        help="the checkout that relative paths are seen from, where this runs in a copy of it",
    )
    return parser


if __name__ == "__main__":
    os.nice(max(0, NICENESS - os.nice(0)))
    sys.exit(main(sys.argv[1:]))
