"""What every store does, whatever it is made of."""

import asyncio
import os

import pytest

from core.cache.stores.base import FenceTable
from core.cache.stores.memory import MemoryStore
from core.errors import SettingsError

NOW = 1_700_000_000.0
K1, K2, K3, K4 = (bytes([n]) * 16 for n in range(4))


async def test_a_miss_is_absent_and_not_an_error(store):
    assert await store.get_many([K1, K2], NOW) == {}


async def test_asking_for_nothing_finds_nothing(store):
    assert await store.get_many([], NOW) == {}


async def test_a_value_is_read_back_as_it_was(store):
    value = bytes(range(256)) * 40
    await store.add(K1, value, NOW + 60, NOW)

    assert await store.get_many([K1, K2], NOW) == {K1: value}


async def test_the_first_value_survives_and_the_second_writer_is_told_so(store):
    first = await store.add(K1, b"first", NOW + 60, NOW)
    second = await store.add(K1, b"second", NOW + 60, NOW + 1)

    assert (first, second) == (b"first", b"first")
    assert await store.get_many([K1], NOW) == {K1: b"first"}


async def test_an_expired_value_that_was_not_removed_loses_to_the_next(store):
    await store.add(K1, b"old", NOW + 60, NOW)

    assert await store.add(K1, b"new", NOW + 600, NOW + 60) == b"new"
    assert await store.get_many([K1], NOW + 61) == {K1: b"new"}


async def test_a_value_lives_until_the_instant_of_its_expiry_and_not_at_it(store):
    await store.add(K1, b"value", NOW + 60.5, NOW)

    assert await store.get_many([K1], NOW + 60.499) == {K1: b"value"}
    assert await store.get_many([K1], NOW + 60.5) == {}


async def test_a_value_without_expiry_lives_for_ever(store):
    await store.add(K1, b"value", None, NOW)

    assert await store.get_many([K1], NOW + 1e10) == {K1: b"value"}
    assert await store.add(K1, b"other", None, NOW + 1e10) == b"value"


async def test_a_clock_that_is_a_day_off_neither_loses_nor_keeps_a_value(store):
    yesterday = NOW - 86_400
    await store.add(K1, b"value", yesterday + 60, yesterday)

    assert await store.get_many([K1], yesterday + 59) == {K1: b"value"}
    assert await store.get_many([K1], NOW) == {}


async def test_a_value_is_replaced_only_where_exactly_the_old_one_stands(store):
    await store.add(K1, b"value", NOW + 60, NOW)

    assert not await store.replace(K1, b"other", b"new", NOW + 90, NOW)
    assert not await store.replace(K2, b"value", b"new", NOW + 90, NOW)
    assert await store.replace(K1, b"value", b"new", NOW + 90, NOW)
    assert await store.get_many([K1, K2], NOW + 89) == {K1: b"new"}


async def test_an_expired_value_cannot_be_replaced(store):
    await store.add(K1, b"value", NOW + 60, NOW)

    assert not await store.replace(K1, b"value", b"new", NOW + 90, NOW + 60)
    assert await store.get_many([K1], NOW + 61) == {}


async def test_a_value_is_removed_only_where_exactly_the_old_one_stands(store):
    await store.add(K1, b"value", None, NOW)

    assert not await store.discard(K1, b"other")
    assert not await store.discard(K2, b"value")
    assert await store.discard(K1, b"value")
    assert await store.get_many([K1], NOW) == {}


async def test_more_keys_than_fit_into_one_statement_are_all_found(store):
    keys = [os.urandom(16) for _ in range(1_300)]
    await asyncio.gather(*(store.add(key, key[:5], NOW + 60, NOW) for key in keys))

    assert await store.get_many([K1, *keys, K2], NOW) == {key: key[:5] for key in keys}


async def test_of_many_writers_at_once_all_get_the_same_value(store):
    values = [b"value %d" % n for n in range(50)]

    survivors = await asyncio.gather(*(store.add(K1, value, None, NOW) for value in values))

    assert len(set(survivors)) == 1


async def test_live_values_are_counted(store):
    for key, expires_at in ((K1, NOW + 1), (K2, NOW + 1_000), (K3, None)):
        await store.add(key, b"value", expires_at, NOW)
    await store.add(K2, b"again", None, NOW)
    await store.replace(K2, b"value", b"other", NOW + 2_000, NOW)

    assert await store.count(NOW) == 3


async def test_the_least_recently_stored_or_replaced_value_leaves_first(open_one):
    store = open_one(max_entries=3)
    for key in (K1, K2, K3):
        await store.add(key, b"value", None, NOW)
    await store.replace(K1, b"value", b"renewed", None, NOW)
    await store.add(K4, b"value", None, NOW)

    assert set(await store.get_many([K1, K2, K3, K4], NOW)) == {K1, K3, K4}
    assert await store.count(NOW) == 3
    await store.close()


async def test_a_value_stored_over_an_expired_one_counts_as_newly_stored(open_one):
    store = open_one(max_entries=2)
    await store.add(K1, b"value", NOW + 1, NOW)
    await store.add(K2, b"value", None, NOW)
    await store.add(K1, b"again", None, NOW + 2)
    await store.add(K3, b"value", None, NOW + 2)

    assert set(await store.get_many([K1, K2, K3], NOW + 2)) == {K1, K3}
    await store.close()


@pytest.mark.parametrize("bound", [0, -1])
def test_a_bound_that_keeps_nothing_is_refused(open_one, bound):
    with pytest.raises(SettingsError, match="max_entries"):
        open_one(max_entries=bound)


async def test_a_new_store_has_no_fences(store):
    assert await store.read_fences(FenceTable()) is None
    assert await store.read_fences(FenceTable(b"another", 3)) == FenceTable()


async def test_each_fence_begins_an_epoch(store):
    assert await store.add_fence(b"a", 0, ()) == 1
    assert await store.add_fence(b"b", 0, ()) == 2
    assert await store.add_fence(b"a", 0, ()) == 3

    table = await store.read_fences(FenceTable())
    assert (table.epoch, dict(table.by_scope)) == (3, {b"a": 3, b"b": 2})


async def test_reading_fences_says_when_there_is_nothing_new(store):
    await store.add_fence(b"a", 0, ())
    table = await store.read_fences(FenceTable())

    assert await store.read_fences(table) is None
    await store.add_fence(b"a", 0, ())
    assert await store.read_fences(table) is not None


async def test_two_stores_with_the_same_fences_can_be_told_apart(store):
    other = MemoryStore()
    for one in (store, other):
        await one.add_fence(b"a", 0, ())

    assert await store.read_fences(await other.read_fences(FenceTable())) is not None


async def test_an_epoch_is_at_least_what_the_caller_knows(store):
    assert await store.add_fence(b"a", 41, ()) == 41
    assert await store.add_fence(b"b", 7, ()) == 42


async def test_a_fence_drops_those_it_makes_superfluous(store):
    for scope in (b"a", b"b", b"c"):
        await store.add_fence(scope, 0, ())
    await store.add_fence(b"all", 0, (b"a", b"c", b"never there"))

    table = await store.read_fences(FenceTable())
    assert dict(table.by_scope) == {b"b": 2, b"all": 4}


async def test_of_many_fences_at_once_no_two_share_an_epoch(store):
    epochs = await asyncio.gather(*(store.add_fence(b"%d" % n, 0, ()) for n in range(40)))

    assert sorted(epochs) == list(range(1, 41))
