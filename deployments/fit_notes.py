"""Notes on fits under way, kept beside the tasks so that every Router can say how far they are."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from core.errors import StoreUnavailable
from core.tasks.notes import PREFIX, Note
from core.tasks.stores.base import TaskStore

log = logging.getLogger("ray.serve.precedent")

NOTE_EVERY_S = 1.0
BEAT_S = 5.0  # a fit that is silent for longer than core.tasks.notes.SILENT_AFTER_S is taken for dead


class FitNotes:
    """Writes the notes of one task's fit.

    Args:
        store: where tasks are kept.
        tenant: whose task.
        first: the note to begin with.
        clock: Unix seconds.
    """

    def __init__(self, store: TaskStore, tenant: str, first: Note, clock: Callable[[], float]) -> None:
        self.note = first
        self._store, self._tenant, self._clock = store, tenant, clock
        self._told = first

    def tell(self, state: str, progress: float) -> None:
        """It is doing this, and is so far; written when the next note is due."""
        self.note = replace(self.note, state=state, progress=progress)

    async def begin(self) -> None:
        """Write the first note.

        Raises:
            StoreUnavailable: the result could not be kept either.
        """
        await self._write(self.note.encode())

    async def keep_telling(self) -> None:
        """Write what is new, and now and then that there is still somebody, until cancelled."""
        while True:
            await asyncio.sleep(NOTE_EVERY_S)
            now = self._clock()
            if self.note != self._told or now >= self._told.at + BEAT_S:
                self.note = self._told = replace(self.note, at=now)
                await self._try_to_write(self.note.encode())

    async def fail(self, why: str) -> Note:
        """Write that it failed; returns the note, since the store may not have taken it."""
        self.note = replace(self.note, state="failed", error=why, at=self._clock())
        await self._try_to_write(self.note.encode())
        return self.note

    async def end(self) -> None:
        """Remove the note."""
        await self._try_to_write(None)

    async def _try_to_write(self, value: bytes | None) -> None:
        try:
            await self._write(value)
        except StoreUnavailable as error:
            log.warning("the progress of the fit of task %r was not noted: %s", self.note.task, error)

    async def _write(self, value: bytes | None) -> None:
        await self._store.put(self._tenant, PREFIX + self.note.task, value, None, self._clock())
