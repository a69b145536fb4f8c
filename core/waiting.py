"""Wait for others no longer than so long, in time in which this process was able to hear them.

A busy event loop runs a timer that came due before it reads the reply that had come by then. A plain timeout
takes this process's own lateness for the other side's: under a rush of requests a healthy store seems to
fail, just when it is needed most. So a wait is counted in steps, and however late one is, it counts once. An
idle loop takes them at their pace, and a busy one looks for a reply that often before it gives up.
"""

import asyncio
from types import TracebackType
from typing import Final

STEPS: Final = 20  # from a call to its reply, a loop turns fewer times


class within:
    """Leave the block with `TimeoutError` after so long, counted as above.

        async with within(0.05):
            reply = await call()

    Args:
        seconds: for an idle loop; a busy one may take longer.
    """

    __slots__ = ("_due", "_left", "_loop", "_next", "_step_s", "_timeout")

    def __init__(self, seconds: float) -> None:
        self._step_s = seconds / STEPS
        self._left = STEPS
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time()
        await self._timeout.__aenter__()
        self._wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._next.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _wait(self) -> None:
        now, on_time = self._loop.time(), self._due + self._step_s
        self._due = on_time if now < on_time else now + self._step_s
        self._next: asyncio.Handle = self._loop.call_at(self._due, self._step)

    def _step(self) -> None:
        self._left -= 1
        if self._left:
            self._next = self._loop.call_soon(self._wait)  # timers may follow one another without a look
        else:
            self._timeout.reschedule(self._loop.time())
