"""Rows in this process."""

from collections import defaultdict
from collections.abc import Sequence

from core.tasks.stores.rows import Numbered, Series


class MemoryRowStore:
    """A `RowStore` that ends with its process."""

    def __init__(self) -> None:
        self._kept_rows: defaultdict[Series, dict[str, Numbered]] = defaultdict(dict)
        self._rows_written = 0

    async def add_rows(self, series: Series, rows: Sequence[tuple[str, bytes]], max_rows: int) -> int:
        """Append rows whose ids are not there."""
        kept = self._kept_rows[series]
        new: dict[str, bytes] = {}
        for row_id, value in rows:
            if row_id not in kept:
                new.setdefault(row_id, value)
        self._append(series, [*new.items()], max_rows)
        return len(new)

    async def replace_rows(self, series: Series, rows: Sequence[tuple[str, bytes]], max_rows: int) -> None:
        """Append rows, each in place of the one with its id."""
        self._append(series, rows, max_rows)

    async def read_rows(self, series: Series, after: int, limit: int) -> list[Numbered]:
        """At most `limit` rows with a number above `after`."""
        found = (row for row in self._kept_rows[series].values() if row.number > after)
        return [row for row, _ in zip(found, range(limit), strict=False)]

    async def known_rows(self, series: Series, ids: Sequence[str]) -> set[str]:
        """Those of some ids that have a row."""
        return {*ids} & self._kept_rows[series].keys()

    async def erase_rows(self, series: Series, ids: Sequence[str]) -> int:
        """Remove rows; return how many there were."""
        kept = self._kept_rows[series]
        return sum([kept.pop(row_id, None) is not None for row_id in ids])

    async def clear_rows(self, series: Series) -> int:
        """Remove all rows, and return how many there were."""
        return len(self._kept_rows.pop(series, {}))

    async def count_rows(self, series: Series, after: int = 0) -> int:
        """How many rows there are with a number above `after`."""
        return sum(row.number > after for row in self._kept_rows[series].values())

    def _append(self, series: Series, rows: Sequence[tuple[str, bytes]], max_rows: int) -> None:
        kept = self._kept_rows[series]
        for row_id, value in rows:
            self._rows_written += 1
            kept.pop(row_id, None)
            kept[row_id] = Numbered(self._rows_written, row_id, value)
        for row_id in [*kept][: max(0, len(kept) - max_rows)]:
            del kept[row_id]
