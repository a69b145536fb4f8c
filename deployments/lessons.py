"""Fitting and certifying in a process of its own, away from the Routers."""

import os
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import ray

from core.errors import PrecedentError
from core.tasks.lesson import Lesson, Wanted

FIT_NICENESS = 10  # the CPU is for those who serve


Event = tuple[str, Any]  # ("progress", share), ("done", result) or ("failed", error)


def teach(lesson: Lesson, wanted: Wanted) -> Iterator[Event]:
    """Learn, and tell how far it is; the last event is the result, or why there is none."""
    os.nice(max(0, FIT_NICENESS - os.nice(0)))
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def work() -> None:
        try:
            events.put(("done", _learn(lesson, wanted, lambda share: events.put(("progress", share)))))
        except PrecedentError as error:
            events.put(("failed", error))
        except Exception as error:  # the thread would end unseen
            events.put(("failed", RuntimeError(f"{type(error).__name__}: {error}")))

    threading.Thread(target=work, daemon=True).start()
    while True:
        event = events.get()
        yield event
        if event[0] != "progress":
            return


async def teach_remotely(lesson: Lesson, wanted: Wanted) -> AsyncIterator[Event]:
    """Do what `teach` does, in a Ray task.

    Raises:
        RayError: the process that did it died.
    """
    # No CPU is reserved: on a small machine the task would never start. Its niceness keeps it out of the way.
    remote: Any = ray.remote(num_cpus=0, max_retries=0, num_returns="streaming")(teach)
    async for event in remote.remote(lesson, wanted):
        yield await event


def _learn(lesson: Lesson, wanted: Wanted, progress: Callable[[float], None]) -> Any:  # noqa: ANN401
    # A Router imports this file, and none of what it takes to fit.
    from core.tasks.learning import learn  # noqa: PLC0415

    return learn(lesson, wanted, progress)
