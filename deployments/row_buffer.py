"""Rows on their way to the task store, which may be away for a while."""

import logging
from collections import Counter

from core.errors import StoreUnavailable
from core.tasks.stores.base import TaskStore
from core.tasks.stores.rows import Series

log = logging.getLogger("ray.serve.precedent")

AT_ONCE = 500


class RowBuffer:
    """Holds rows until the store has them.

    Args:
        store: where rows are kept.
        max_pending: rows that are held; more are lost, and counted.
        max_rows: of each series in the store; the oldest go.
    """

    def __init__(self, store: TaskStore, max_pending: int, max_rows: int) -> None:
        self._store = store
        self.max_pending = max_pending
        self._max_rows = max_rows
        self._pending: dict[Series, dict[str, bytes]] = {}
        self._failing = False
        self.size = 0
        self.lost: Counter[tuple[str, str]] = Counter()  # by tenant and task

    def add(self, series: Series, row_id: str, value: bytes) -> None:
        """Hold a row; the first of an id counts."""
        rows = self._pending.setdefault(series, {})
        if row_id in rows:
            return
        if self.size >= self.max_pending:
            self.lost[series.tenant, series.task] += 1
            return
        rows[row_id] = value
        self.size += 1

    def drop(self, series: Series) -> None:
        """Forget the rows of a series."""
        self.size -= len(self._pending.pop(series, {}))

    @property
    def series(self) -> list[Series]:
        """The series of which rows are held."""
        return [*self._pending]

    async def flush(self) -> bool:
        """Bring the store what is held, as far as it takes it; False when it is away."""
        for series in [*self._pending]:
            while rows := self._pending.get(series):
                part = [*rows.items()][:AT_ONCE]
                try:
                    await self._store.add_rows(series, part, self._max_rows)
                except StoreUnavailable as error:
                    if not self._failing:
                        log.warning("rows wait in memory: %s", error)
                    self._failing = True
                    return False
                for row_id, _ in part:
                    self.size -= rows.pop(row_id, None) is not None
            self._pending.pop(series, None)
        self._failing = False
        return True
