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
    """

    def __init__(self, run: Callable[[Sequence[A]], Awaitable[Sequence[R]]]) -> None:
        self._run = run
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._running: set[asyncio.Task[None]] = set()  # a task that nobody refers to may be collected

    async def call(self, argument: A) -> R:
        """Return the result for `argument`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((argument, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._start)
        return await future

    def _start(self) -> None:
        batch, self._waiting = self._waiting, []
        task = asyncio.get_running_loop().create_task(self._settle(batch))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

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
