"""A store that fails as told, and what the tests put into one."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import orjson

from core.cache.decision import Decision
from core.cache.envelope import encode
from core.cache.retention import Retention
from core.cache.stores.base import FenceTable
from core.cache.stores.memory import MemoryStore
from core.errors import StoreUnavailable
from core.identity import Identity

NOW = 1_700_000_000.0
ACME = Identity("acme", "default")
OTHER = Identity("other", "default")
READS = ("get_many", "read_fences")
WRITES = ("add", "replace", "discard", "add_fence")


def key(number: int) -> bytes:
    """The key of the request with this number."""
    return number.to_bytes(16, "big")


def noul(number: int, probability: float = 0.9, **fields: Any) -> Decision:
    """A fresh decision about one yes/no question."""
    answers = orjson.dumps({"q": {"type": "noul", "noul": probability}})
    margin = round(abs(2 * probability - 1), 6)
    return Decision(key=key(number), model="fake", answers=answers, margins={"q": margin}, **fields)


def written(decision: Decision, tenant: str) -> bytes:
    """The stored form of a decision that has one."""
    value = encode(decision, tenant)
    assert value is not None
    return value


def kept(retention: Retention, decision: Decision, now: float) -> Decision:
    """A decision with its times, where it is kept."""
    stamped = retention.stamp(decision, now)
    assert isinstance(stamped, Decision)
    return stamped


class FaultyStore:
    """A memory store whose operations can be made to fail, or to hang until let go.

    Attributes:
        broken: names of the operations that raise.
        frozen: names of the operations that hang.
        error: what is raised, instead of StoreUnavailable.
        calls: names of the operations that were asked for.
    """

    def __init__(self, inner: MemoryStore | None = None) -> None:
        self.inner = inner or MemoryStore()
        self.broken: set[str] = set()
        self.frozen: set[str] = set()
        self.error: Exception | None = None
        self.calls: list[str] = []
        self.thawed = asyncio.Event()

    async def get_many(self, keys: Sequence[bytes], now: float) -> dict[bytes, bytes]:
        await self._meet("get_many")
        return await self.inner.get_many(keys, now)

    async def add(self, key: bytes, value: bytes, expires_at: float | None, now: float) -> bytes:
        await self._meet("add")
        return await self.inner.add(key, value, expires_at, now)

    async def replace(self, key: bytes, old: bytes, new: bytes, expires_at: float | None, now: float) -> bool:
        await self._meet("replace")
        return await self.inner.replace(key, old, new, expires_at, now)

    async def discard(self, key: bytes, old: bytes) -> bool:
        await self._meet("discard")
        return await self.inner.discard(key, old)

    async def prune(self, now: float) -> int:
        await self._meet("prune")
        return await self.inner.prune(now)

    async def count(self, now: float) -> int:
        await self._meet("count")
        return await self.inner.count(now)

    async def read_fences(self, known: FenceTable) -> FenceTable | None:
        await self._meet("read_fences")
        return await self.inner.read_fences(known)

    async def add_fence(self, scope: bytes, at_least: int, dropped: Collection[bytes]) -> int:
        await self._meet("add_fence")
        return await self.inner.add_fence(scope, at_least, dropped)

    async def close(self) -> None:
        await self.inner.close()

    async def _meet(self, operation: str) -> None:
        self.calls.append(operation)
        if operation in self.frozen:
            await self.thawed.wait()
        if operation in self.broken:
            raise self.error or StoreUnavailable(operation, "told to fail")
