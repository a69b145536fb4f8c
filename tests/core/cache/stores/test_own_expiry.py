"""Stores that remove what has expired themselves, and count exactly."""

import pytest

from core.cache.stores.memory import MemoryStore
from core.cache.stores.sqlite import SqliteStore

NOW = 1_700_000_000.0


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    one = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "decisions.sqlite")
    yield one
    await one.close()


async def fill(store, entries):
    for number in range(entries):
        await store.add(number.to_bytes(16, "big"), b"value", NOW + number, NOW)


async def test_an_expired_value_is_not_counted(store):
    await fill(store, 100)

    assert await store.count(NOW + 39) == 60


async def test_pruning_removes_what_has_expired_and_says_how_much(store):
    await fill(store, 100)

    assert await store.prune(NOW + 39) == 40
    assert await store.prune(NOW + 39) == 0
    assert await store.count(NOW) == 60


async def test_pruning_goes_in_steps_so_that_it_never_blocks_for_long(store):
    await fill(store, 2_300)

    steps = []
    while gone := await store.prune(NOW + 10_000):
        steps.append(gone)

    assert sum(steps) == 2_300
    assert len(steps) == 3


async def test_a_renewed_value_is_not_pruned_at_its_first_expiry(store):
    await store.add(b"k" * 16, b"value", NOW + 1, NOW)
    await store.replace(b"k" * 16, b"value", b"renewed", NOW + 100, NOW)

    assert await store.prune(NOW + 2) == 0
    assert await store.prune(NOW + 100) == 1
