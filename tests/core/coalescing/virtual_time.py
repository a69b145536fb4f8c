"""An event loop whose clock jumps to the next timer: minutes take microseconds, always in the same order."""

import asyncio
import selectors
from typing import Any


class NothingWillHappen(AssertionError):
    """Every task waits and no timer is left: in a real process this would be a hang."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs until idle, then moves its clock to the next timer instead of sleeping."""

    def __init__(self) -> None:
        self._now = 1_000.0
        super().__init__(_Impatient(self))

    def time(self) -> float:
        return self._now

    def pass_time(self, seconds: float) -> None:
        self._now += seconds


class _Impatient(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise NothingWillHappen
            self._loop.pass_time(timeout)
        return ready
