"""What every task store does, whatever it is made of."""

import asyncio

import pytest

from core.errors import SettingsError, TaskConflict
from core.tasks.stores import open_task_store

NOW = 1_700_000_000.0


async def test_what_was_never_written_is_not_there(store):
    assert await store.get("acme", "support") is None
    assert await store.revision() == 0
    assert (await store.read(0)).entries == ()


async def test_a_record_is_read_back_with_its_version_and_time(store):
    value = bytes(range(256))

    assert await store.put("acme", "support", value, 0, NOW) == 1
    found = await store.get("acme", "support")

    assert found is not None
    assert (found.tenant, found.id, found.version, found.value) == ("acme", "support", 1, value)
    assert found.updated_at == NOW


async def test_each_write_counts_the_version_up(store):
    for expected in range(3):
        assert await store.put("acme", "support", b"x", expected, NOW) == expected + 1


async def test_a_write_over_another_version_is_refused_with_both_and_changes_nothing(store):
    await store.put("acme", "support", b"one", 0, NOW)
    await store.put("acme", "support", b"two", 1, NOW)

    with pytest.raises(TaskConflict) as refused:
        await store.put("acme", "support", b"other", 1, NOW)

    assert (refused.value.store_version, refused.value.your_version) == (2, 1)
    found = await store.get("acme", "support")
    assert found is not None
    assert found.value == b"two"


async def test_a_first_write_over_something_is_refused(store):
    await store.put("acme", "support", b"one", 0, NOW)

    with pytest.raises(TaskConflict):
        await store.put("acme", "support", b"other", 0, NOW)


async def test_whatever_is_there_may_be_replaced_unseen(store):
    await store.put("acme", "support", b"one", 0, NOW)

    assert await store.put("acme", "support", b"two", None, NOW) == 2


async def test_of_many_writers_of_one_version_exactly_one_wins(store):
    await store.put("acme", "support", b"zero", 0, NOW)

    settled = await asyncio.gather(
        *(store.put("acme", "support", b"%d" % writer, 1, NOW) for writer in range(8)), return_exceptions=True
    )

    assert sum(one == 2 for one in settled) == 1
    assert sum(isinstance(one, TaskConflict) for one in settled) == 7


async def test_tenants_and_ids_are_kept_apart(store):
    await store.put("acme", "support", b"a", 0, NOW)
    await store.put("globex", "support", b"b", 0, NOW)
    await store.put("acme", "sales \u00e9", b"c", 0, NOW)

    found = {(one.tenant, one.id): one.value for one in (await store.read(0)).entries}

    assert found == {("acme", "support"): b"a", ("globex", "support"): b"b", ("acme", "sales \u00e9"): b"c"}


async def test_a_removed_task_is_a_tombstone_that_counts_on(store):
    await store.put("acme", "support", b"one", 0, NOW)
    await store.put("acme", "support", None, 1, NOW + 1)

    found = await store.get("acme", "support")
    assert found is not None
    assert (found.version, found.value) == (2, None)
    assert await store.put("acme", "support", b"again", 2, NOW + 2) == 3


async def test_a_reader_is_told_what_is_new_and_nothing_else(store):
    await store.put("acme", "one", b"1", 0, NOW)
    known = (await store.read(0)).revision
    assert (await store.read(known)).entries == ()

    await store.put("acme", "two", b"2", 0, NOW)
    await store.put("acme", "one", None, 1, NOW)
    changes = await store.read(known)

    assert {(one.id, one.value) for one in changes.entries} == {("one", None), ("two", b"2")}
    assert not changes.is_everything
    assert changes.revision > known
    assert await store.revision() == changes.revision


async def test_a_reader_from_a_future_that_the_store_has_lost_reads_everything(store):
    await store.put("acme", "one", b"1", 0, NOW)

    changes = await store.read(1_000)

    assert changes.is_everything
    assert [one.id for one in changes.entries] == ["one"]


async def test_no_change_is_missed_while_others_write(store):
    seen: dict[str, bytes | None] = {}
    known = 0

    async def write(task):
        for version in range(5):
            await store.put("acme", f"task {task}", b"%d" % version, version, NOW)

    writing = asyncio.gather(*(write(task) for task in range(4)))
    while not writing.done() or await store.revision() != known:
        changes = await store.read(known)
        known = changes.revision
        seen |= {one.id: one.value for one in changes.entries}
        await asyncio.sleep(0)
    await writing

    assert seen == {f"task {task}": b"4" for task in range(4)}


async def test_an_object_is_read_back_byte_for_byte(store):
    data = bytes(range(256)) * 40_000
    await store.put_object("ab" * 16, data, NOW)

    assert await store.get_object("ab" * 16) == data
    assert await store.get_object("cd" * 16) is None


async def test_old_tombstones_are_forgotten_and_tasks_never(store):
    await store.put("acme", "gone", b"1", 0, NOW)
    await store.put("acme", "gone", None, 1, NOW)
    await store.put("acme", "lately", b"1", 0, NOW)
    await store.put("acme", "lately", None, 1, NOW + 100)
    await store.put("acme", "kept", b"1", 0, NOW)

    assert await store.forget(NOW + 50) == 1
    assert await store.get("acme", "gone") is None
    assert await store.get("acme", "lately") is not None
    assert await store.get("acme", "kept") is not None


async def test_an_object_that_a_record_names_is_not_forgotten(store):
    await store.put_object("ab" * 16, b"named", NOW)
    await store.put("acme", "support", b"1", 0, NOW, ["ab" * 16])

    await store.forget(NOW + 1_000)

    assert await store.get_object("ab" * 16) == b"named"


@pytest.mark.parametrize("url", ["ftp://host/x", "sqlite:///", "nothing"])
def test_a_url_of_another_kind_is_refused_with_the_kinds_there_are(url):
    with pytest.raises(SettingsError, match="use one of memory, sqlite, redis"):
        open_task_store(url)
