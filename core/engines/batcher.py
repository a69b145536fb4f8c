"""From a blocking model to an engine: take what is queued, run it, repeat.

There is no timer. A batch is whatever came while the batch before it ran, up to a budget of tokens: one
caller waits for nobody, and many callers fill batches by themselves.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from dataclasses import dataclass

from core.engines.base import BatchModel, Item, Limits, Reading
from core.errors import EngineFailed, EngineUnavailable

Answer = Reading | Exception


@dataclass(slots=True, eq=False)
class _Waiting:
    item: Item
    cost: int
    answer: asyncio.Future[Answer]


class Batched:
    """An `Engine` over a `BatchModel`, which runs in one thread of its own.

    Args:
        model: the model.
        max_batch_tokens: a batch holds no more, unless a single item does.
        max_queued: items that may wait; more are refused with `EngineUnavailable`.
    """

    def __init__(self, model: BatchModel, max_batch_tokens: int, max_queued: int = 100_000) -> None:
        self.name: str = model.name
        self.fingerprint: str = model.fingerprint
        self.limits: Limits = model.limits
        self.batch_invariant: bool = model.batch_invariant
        self._model = model
        self._max_batch_tokens = max_batch_tokens
        self._max_queued = max_queued
        self._queue: deque[_Waiting] = deque()
        self._in_hand: list[_Waiting] = []
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._worker: asyncio.Task[None] | None = None
        self._dead: str | None = None
        self._closing = False

    async def answer(self, items: Sequence[Item]) -> list[Answer]:
        """Answer each item, in order; an item that cannot be answered is an exception in its place.

        Raises:
            EngineUnavailable: the worker died or is closing, or too much waits already.
        """
        self._refuse_when_unable(len(items))
        if self._worker is None:
            own = Context()  # not the first caller's, which would be held for as long as this engine lives
            self._worker = asyncio.create_task(self._run(), name="batcher", context=own)
            self._worker.add_done_callback(self._ended, context=own)
        loop = asyncio.get_running_loop()
        waiting = [_Waiting(item, self._model.cost(item), loop.create_future()) for item in items]
        self._queue.extend(waiting)
        self._arrived.set()
        # A caller that leaves cancels these, and the cut of the next batch drops its items.
        return await asyncio.gather(*(one.answer for one in waiting))

    async def check_health(self) -> None:
        """Raise `EngineUnavailable` when no batch will ever run again."""
        if self._dead is not None:
            raise EngineUnavailable(self._dead)

    async def close(self) -> None:
        """Finish what was taken, take no more, and end the thread."""
        self._closing = True
        self._arrived.set()
        if self._worker is not None:
            await asyncio.wait([self._worker])
        self._thread.shutdown()

    def _refuse_when_unable(self, count: int) -> None:
        if self._dead is not None or self._closing:
            raise EngineUnavailable(self._dead or "the engine is shutting down")
        if len(self._queue) + count > self._max_queued:
            raise EngineUnavailable(f"{len(self._queue)} items wait and {self._max_queued} may")

    async def _run(self) -> None:
        while True:
            self._in_hand = self._cut()
            if self._in_hand:
                await self._answer_batch(self._in_hand)
            elif self._closing:
                return
            else:
                self._arrived.clear()
                await self._arrived.wait()

    def _cut(self) -> list[_Waiting]:
        """The next batch, without the items of callers who left."""
        batch: list[_Waiting] = []
        tokens = 0
        while self._queue:
            one = self._queue[0]
            if not one.answer.done():
                tokens += one.cost
                if batch and tokens > self._max_batch_tokens:
                    break
                batch.append(one)
            self._queue.popleft()
        return batch

    async def _answer_batch(self, batch: list[_Waiting]) -> None:
        answers = await self._read([one.item for one in batch])
        for one, answer in zip(batch, answers, strict=True):
            if not one.answer.done():
                one.answer.set_result(answer)

    async def _read(self, items: list[Item]) -> list[Answer]:
        outcome = await asyncio.get_running_loop().run_in_executor(self._thread, self._attempt, items)
        if not isinstance(outcome, BaseException):
            return outcome
        if not isinstance(outcome, Exception):
            self._dead = f"the engine's worker ended: {type(outcome).__name__}"
            raise EngineUnavailable(self._dead) from outcome
        if len(items) == 1:
            return [outcome]
        # One of them is to blame: alone, it fails alone.
        return [answer for item in items for answer in await self._read([item])]

    def _attempt(self, items: list[Item]) -> list[Answer] | BaseException:
        """Read a batch in the worker thread, and return what that raises.

        Raised, a StopIteration would leave the event loop waiting for ever, and a SystemExit would end it.
        """
        try:
            answers = self._model.read(items)
            if len(answers) != len(items):
                raise EngineFailed(f"{len(answers)} readings for {len(items)} items")
        except BaseException as error:
            return error
        return answers

    def _ended(self, worker: asyncio.Task[None]) -> None:
        """Tell everybody who waits, at once: a dead worker answers nobody."""
        if not worker.cancelled() and worker.exception() is None:
            return  # closed
        reason = "cancelled" if worker.cancelled() else type(worker.exception()).__name__
        self._dead = self._dead or f"the engine's worker ended: {reason}"
        for one in (*self._in_hand, *self._queue):
            if not one.answer.done():
                one.answer.set_exception(EngineUnavailable(self._dead))
        self._queue.clear()
