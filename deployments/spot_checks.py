"""Asking the engine again, in the background, about answers that a table gave."""

import asyncio
from collections.abc import Callable

from core.engines.base import Engine, Item, Reading
from core.errors import PrecedentError
from core.inference import complete

MAX_WAITING = 200
AT_ONCE = 4


class SpotChecks:
    """Asks the engine when nobody waits for the answer; what is too much is left out.

    Which answers are left out does not depend on whether they are right, so the others stay a fair sample.

    Args:
        engine: the model.
        deadline_s: after which a check is given up.
    """

    def __init__(self, engine: Engine, deadline_s: float) -> None:
        self._engine = engine
        self._deadline_s = deadline_s
        self._places = asyncio.Semaphore(AT_ONCE)
        self._under_way: set[asyncio.Task[None]] = set()
        self.left_out = 0

    def ask(self, item: Item, tell: Callable[[Reading], None]) -> None:
        """Have `tell` called with what the engine says; never, when it says nothing."""
        if len(self._under_way) >= MAX_WAITING:
            self.left_out += 1
            return
        task = asyncio.create_task(self._ask(item, tell))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def drain(self) -> None:
        """Wait for the checks under way."""
        await asyncio.gather(*self._under_way)

    async def _ask(self, item: Item, tell: Callable[[Reading], None]) -> None:
        async with self._places:
            try:
                async with asyncio.timeout(self._deadline_s):
                    (reading,) = complete(await self._engine.answer([item]), 1)
            except (PrecedentError, TimeoutError):
                self.left_out += 1
                return
        tell(reading)
