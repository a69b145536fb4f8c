from core.errors import StoreUnavailable
from core.tasks.stores.memory import MemoryTaskStore
from core.tasks.stores.rows import Series
from deployments.row_buffer import AT_ONCE, RowBuffer

ONE, OTHER = Series("acme", "support", "uniform"), Series("acme", "mail", "uniform")


class Away(MemoryTaskStore):
    """A store that takes so many calls and no more."""

    takes = 0

    async def add_rows(self, series, rows, max_rows):
        if self.takes == 0:
            raise StoreUnavailable("add_rows", "it is down")
        self.takes -= 1
        return await super().add_rows(series, rows, max_rows)


def filled(store, n, max_pending=10_000):
    buffer = RowBuffer(store, max_pending, 100_000)
    for number in range(n):
        buffer.add(ONE, f"id-{number}", b"%d" % number)
    return buffer


async def test_rows_arrive_in_their_order_and_many_at_a_time():
    store = Away()
    store.takes = 3
    buffer = filled(store, 2 * AT_ONCE + 1)

    await buffer.flush()

    assert [int(row.value) for row in await store.read_rows(ONE, 0, 10_000)] == [*range(2 * AT_ONCE + 1)]
    assert (buffer.size, store.takes) == (0, 0)


async def test_while_the_store_is_away_rows_wait_and_those_beyond_the_bound_are_counted():
    store = Away()
    buffer = filled(store, 15, max_pending=10)
    await buffer.flush()
    buffer.add(OTHER, "another", b"")

    assert buffer.size == 10
    assert buffer.lost == {("acme", "support"): 5, ("acme", "mail"): 1}
    store.takes = 9
    await buffer.flush()
    assert await store.count_rows(ONE) == 10
    assert buffer.size == 0


async def test_what_the_store_took_before_it_went_away_is_not_held_any_longer():
    store = Away()
    store.takes = 1
    buffer = filled(store, AT_ONCE + 7)

    await buffer.flush()

    assert buffer.size == 7
    store.takes = 1
    await buffer.flush()
    assert await store.count_rows(ONE) == AT_ONCE + 7


async def test_a_row_that_is_held_already_is_held_once_as_it_was_first():
    store = Away()
    store.takes = 1
    buffer = filled(store, 1)
    buffer.add(ONE, "id-0", b"later")

    await buffer.flush()

    assert [row.value for row in await store.read_rows(ONE, 0, 10)] == [b"0"]
