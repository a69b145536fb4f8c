"""Tasks in this process, forgotten when it ends and shared with no other."""

from collections.abc import Sequence

from core.errors import TaskConflict
from core.tasks.stores.base import Changes, Entry
from core.tasks.stores.memory_rows import MemoryRowStore


class MemoryTaskStore(MemoryRowStore):
    """A `TaskStore` in dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self._revision = 0
        self._entries: dict[tuple[str, str], tuple[int, Entry, tuple[str, ...]]] = {}
        self._objects: dict[str, tuple[bytes, float]] = {}

    async def revision(self) -> int:
        """The number of the newest write."""
        return self._revision

    async def read(self, known: int) -> Changes:
        """Every task written after revision `known`."""
        everything = not 0 < known <= self._revision
        since = 0 if everything else known
        changed = sorted(
            (at, entry.tenant, entry.id) for at, entry, _ in self._entries.values() if at > since
        )
        entries = tuple(self._entries[tenant, task_id][1] for _, tenant, task_id in changed)
        return Changes(self._revision, entries, everything)

    async def get(self, tenant: str, task_id: str) -> Entry | None:
        """One task."""
        found = self._entries.get((tenant, task_id))
        return None if found is None else found[1]

    async def put(
        self,
        tenant: str,
        task_id: str,
        value: bytes | None,
        expected: int | None,
        now: float,
        objects: Sequence[str] = (),
    ) -> int:
        """Write a record, or a tombstone, and return its version."""
        found = await self.get(tenant, task_id)
        version = 0 if found is None else found.version
        if expected is not None and expected != version:
            raise TaskConflict(task_id, version, expected)
        self._revision += 1
        entry = Entry(tenant, task_id, version + 1, value, now)
        self._entries[tenant, task_id] = (self._revision, entry, tuple(objects))
        return version + 1

    async def put_object(self, digest: str, data: bytes, now: float) -> None:
        """Keep an object."""
        self._objects[digest] = (data, now)

    async def get_object(self, digest: str) -> bytes | None:
        """An object."""
        return self._objects.get(digest, (None, 0.0))[0]

    async def forget(self, before: float) -> int:
        """Drop tombstones and unnamed objects from before an instant."""
        gone = [
            key
            for key, (_, entry, _) in self._entries.items()
            if entry.value is None and entry.updated_at < before
        ]
        for key in gone:
            del self._entries[key]
        named = {digest for _, _, objects in self._entries.values() for digest in objects}
        unnamed = [digest for digest, (_, at) in self._objects.items() if digest not in named and at < before]
        for digest in unnamed:
            del self._objects[digest]
        return len(gone) + len(unnamed)

    async def close(self) -> None:
        """Nothing is held."""
