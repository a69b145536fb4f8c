"""What every task store does with rows."""

import asyncio

from core.tasks.stores.rows import Series

ROWS = Series("acme", "support")
MANY = 1_000_000


def rows(first, last):
    return [(f"id-{n}", b"%d" % n) for n in range(first, last)]


async def values(store, series=ROWS, after=0, limit=MANY):
    return [int(row.value) for row in await store.read_rows(series, after, limit)]


async def test_rows_are_read_back_in_the_order_in_which_they_were_added(store):
    value = bytes(range(256))
    assert await store.add_rows(ROWS, [("a", value), ("b", b"")], MANY) == 2
    assert await store.add_rows(ROWS, [("0", b"later")], MANY) == 1
    found = await store.read_rows(ROWS, 0, MANY)

    assert [(row.id, row.value) for row in found] == [("a", value), ("b", b""), ("0", b"later")]
    assert [row.number for row in found] == sorted({row.number for row in found})


async def test_a_series_without_rows_has_none(store):
    assert await store.read_rows(ROWS, 0, MANY) == []
    assert await store.count_rows(ROWS) == await store.clear_rows(ROWS) == 0
    assert await store.erase_rows(ROWS, ["a"]) == await store.erase_rows(ROWS, []) == 0
    assert await store.add_rows(ROWS, [], MANY) == 0


async def test_which_rows_are_there_is_told_by_their_ids(store):
    await store.add_rows(ROWS, rows(0, 1_200), MANY)

    asked = [f"id-{n}" for n in range(600, 1_800)]
    assert await store.known_rows(ROWS, asked) == {f"id-{n}" for n in range(600, 1_200)}
    assert (
        await store.known_rows(Series("other", "support"), asked) == await store.known_rows(ROWS, []) == set()
    )


async def test_a_row_added_again_is_there_once_as_it_was_first(store):
    await store.add_rows(ROWS, [("a", b"1"), ("b", b"2")], MANY)

    assert await store.add_rows(ROWS, [("b", b"9"), ("c", b"3"), ("c", b"9")], MANY) == 1
    assert await values(store) == [1, 2, 3]


async def test_a_replaced_row_is_the_newest(store):
    await store.replace_rows(ROWS, [("a", b"1"), ("b", b"2"), ("c", b"3")], MANY)
    seen = (await store.read_rows(ROWS, 0, MANY))[-1].number
    await store.replace_rows(ROWS, [("a", b"4"), ("a", b"5")], MANY)

    assert await values(store) == [2, 3, 5]
    assert await values(store, after=seen) == [5]
    assert (await store.count_rows(ROWS), await store.count_rows(ROWS, after=seen)) == (3, 1)


async def test_the_oldest_rows_go_beyond_the_bound(store):
    for first in range(0, 60, 20):
        await store.add_rows(ROWS, rows(first, first + 20), 30)

    assert await values(store) == [*range(30, 60)]
    assert await store.count_rows(ROWS) == 30

    await store.replace_rows(ROWS, rows(60, 100), 30)
    assert await values(store) == [*range(70, 100)]


async def test_a_row_that_went_may_come_again(store):
    await store.add_rows(ROWS, rows(0, 3), 2)

    assert await store.add_rows(ROWS, rows(0, 1), 2) == 1
    assert await values(store) == [2, 0]


async def test_reading_goes_on_where_it_stopped(store):
    await store.add_rows(ROWS, rows(0, 1_203), MANY)
    found, after = [], 0
    while part := await store.read_rows(ROWS, after, 600):
        found += part
        after = part[-1].number

    assert [int(row.value) for row in found] == [*range(1_203)]


async def test_rows_are_erased_by_id(store):
    await store.add_rows(ROWS, rows(0, 1_203), MANY)

    assert await store.erase_rows(ROWS, [f"id-{n}" for n in range(1_200)] + ["unknown"]) == 1_200
    assert await values(store) == [1_200, 1_201, 1_202]


async def test_numbers_go_on_after_all_rows_were_removed(store):
    await store.add_rows(ROWS, rows(0, 3), MANY)
    seen = (await store.read_rows(ROWS, 0, MANY))[-1].number

    assert await store.clear_rows(ROWS) == 3
    await store.add_rows(ROWS, rows(0, 1), MANY)
    assert await values(store, after=seen) == [0]


async def test_series_do_not_see_each_other(store):
    others = [Series("other", "support"), Series("acme", "{support}"), Series("acme", "support", "labels")]
    for number, series in enumerate([ROWS, *others]):
        await store.add_rows(series, [("a", b"%d" % number)], 1)
    await store.clear_rows(others[0])

    assert [await values(store, series) for series in [ROWS, *others]] == [[0], [], [2], [3]]


async def test_rows_are_no_change_of_any_task(store):
    await store.put("acme", "support", b"record", 0, 1.0)
    before = await store.revision()
    await store.add_rows(ROWS, rows(0, 3), MANY)

    assert await store.revision() == before


async def test_rows_that_many_add_at_once_are_all_there_once(store):
    await asyncio.gather(*(store.add_rows(ROWS, rows(n, n + 20), MANY) for n in range(0, 200, 10)))

    assert sorted(await values(store)) == [*range(210)]
