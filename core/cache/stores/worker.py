"""One thread for calls that block, so that the event loop does not."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Run blocking calls one after another on a thread of their own, started at the first call.

    A caller that is cancelled leaves its call running: the thread cannot be interrupted.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, call: Callable[[], T]) -> T:
        """Return what `call` returns, or raise what it raises, from the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put(_Job(call, future, loop))
        return await future

    def close(self) -> None:
        """Let the calls in the queue finish and end the thread; a later call starts another."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()


class _Job:
    __slots__ = ("_call", "_future", "_loop")

    def __init__(
        self, call: Callable[[], Any], future: asyncio.Future[Any], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._call, self._future, self._loop = call, future, loop

    def run(self) -> None:
        try:
            result, error = self._call(), None
        except Exception as raised:  # whatever it is belongs to the caller
            result, error = None, raised
        with contextlib.suppress(RuntimeError):  # the event loop was closed meanwhile: nobody waits
            self._loop.call_soon_threadsafe(self._tell, result, error)

    def _tell(self, result: object, error: Exception | None) -> None:
        if self._future.done():  # the caller left
            return
        if error is None:
            self._future.set_result(result)
        else:
            self._future.set_exception(error)
