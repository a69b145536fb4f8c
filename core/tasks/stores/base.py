"""What tasks ask of a place that keeps them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from core.tasks.stores.rows import RowStore

KEEP_TOMBSTONES_S = 7 * 86_400.0  # a server that was away for longer reads everything again


@dataclass(frozen=True, slots=True)
class Entry:
    """One task as the store has it."""

    tenant: str
    id: str
    version: int  # 1 for the first write of this id, tombstones included
    value: bytes | None  # the record; None for a tombstone
    updated_at: float  # Unix seconds


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed, and up to where."""

    revision: int  # of the store, after all of `entries`
    entries: tuple[Entry, ...]
    is_everything: bool  # what is not among `entries` does not exist


class TaskStore(RowStore, Protocol):
    """Records by tenant and id with a version each, objects by digest, and rows to learn from.

    Each write of a record raises the revision of the store, so that a reader asks for what is new. Failures
    raise `StoreUnavailable`, a lost race `TaskConflict`, and nothing else is raised.
    """

    async def revision(self) -> int:
        """The number of the newest write."""
        ...

    async def read(self, known: int) -> Changes:
        """Every task written after revision `known`, as it is now; everything for 0 or a future one."""
        ...

    async def get(self, tenant: str, task_id: str) -> Entry | None:
        """One task; None where there never was one, or it was forgotten."""
        ...

    async def put(
        self,
        tenant: str,
        task_id: str,
        value: bytes | None,
        expected: int | None,
        now: float,
        objects: Sequence[str] = (),
    ) -> int:
        """Write a record, or a tombstone, and return its version.

        Args:
            tenant: whose.
            task_id: which.
            value: the record; None removes the task.
            expected: the version it replaces, 0 for none; None replaces whatever is there.
            now: Unix seconds.
            objects: digests that the record names; what no record names is forgotten in the end.

        Raises:
            TaskConflict: another version is there.
        """
        ...

    async def put_object(self, digest: str, data: bytes, now: float) -> None:
        """Keep an object; to be called before the record that names it is written."""
        ...

    async def get_object(self, digest: str) -> bytes | None:
        """An object."""
        ...

    async def forget(self, before: float) -> int:
        """Drop tombstones and unnamed objects from before an instant; return how many went."""
        ...

    async def close(self) -> None:
        """Release files, connections and threads."""
        ...
