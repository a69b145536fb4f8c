"""Calls made within one turn of the event loop become one call."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Together(Generic[A, R]):
    """Collect arguments until the event loop turns, then run them all at once.

    The work belongs to nobody in particular: a caller that leaves disturbs neither it nor the others.

    Args:
        run: takes the arguments and returns one result for each, in order; it must not raise.
        at_once: how many runs may be in progress; what arrives meanwhile goes with the next.
    """

    def __init__(self, run: Callable[[Sequence[A]], Awaitable[Sequence[R]]], at_once: int = 1_000) -> None:
        self._run = run
        self._at_once = at_once
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._running: set[asyncio.Task[None]] = set()  # a task that nobody refers to may be collected

    def call(self, argument: A) -> asyncio.Future[R]:
        """Return the result for `argument`, to be awaited."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((argument, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._start)
        return future

    async def drain(self) -> None:
        """Wait for every run in progress."""
        while self._running:
            await asyncio.wait(self._running)

    def _start(self) -> None:
        if len(self._running) >= self._at_once:  # whichever ends first starts the next
            return
        batch = [(argument, future) for argument, future in self._waiting if not future.done()]
        self._waiting = []
        if batch:
            task = asyncio.get_running_loop().create_task(self._settle(batch))
            self._running.add(task)
            task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if self._waiting:
            self._start()

    async def _settle(self, batch: list[tuple[A, asyncio.Future[R]]]) -> None:
        try:
            results = await self._run([argument for argument, _ in batch])
        except asyncio.CancelledError:  # only a stopping event loop cancels it
            for _, future in batch:
                future.cancel()
            raise
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():  # a caller that left
                future.set_result(result)
