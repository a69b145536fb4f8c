"""What tables that learn from traffic ask of a place that keeps their rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Series:
    """Rows of one kind of one task."""

    tenant: str
    task: str
    name: str = "rows"


@dataclass(frozen=True, slots=True)
class Numbered:
    """One row as the store has it."""

    number: int  # of its writing, ascending within a series, never given twice
    id: str
    value: bytes


class RowStore(Protocol):
    """Series of values by id, in the order in which they were written, each series with a bound.

    Failures raise `StoreUnavailable`, and nothing else is raised. A write that failed may have happened; the
    same rows written again are there once.
    """

    async def add_rows(self, series: Series, rows: Sequence[tuple[str, bytes]], max_rows: int) -> int:
        """Append rows whose ids are not there, and let the oldest go beyond `max_rows`.

        Returns:
            How many were new.
        """
        ...

    async def replace_rows(self, series: Series, rows: Sequence[tuple[str, bytes]], max_rows: int) -> None:
        """Append rows, each in place of the one with its id; the oldest go beyond `max_rows`."""
        ...

    async def read_rows(self, series: Series, after: int, limit: int) -> list[Numbered]:
        """At most `limit` rows with a number above `after`, the lowest first."""
        ...

    async def known_rows(self, series: Series, ids: Sequence[str]) -> set[str]:
        """Those of some ids that have a row."""
        ...

    async def erase_rows(self, series: Series, ids: Sequence[str]) -> int:
        """Remove rows; return how many there were."""
        ...

    async def clear_rows(self, series: Series) -> int:
        """Remove all rows, and return how many there were; numbers go on."""
        ...

    async def count_rows(self, series: Series, after: int = 0) -> int:
        """How many rows there are with a number above `after`."""
        ...
