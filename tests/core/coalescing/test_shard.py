import asyncio
from collections.abc import Sequence

import pytest

from core.coalescing.bounds import Bounds
from core.coalescing.messages import Batch, Claim, Event, Handed, Leave, Release, Run, Settle, Settled, Wait
from core.coalescing.shard import LocalShard, ShardLoad
from tests.core.coalescing.virtual_time import VirtualTimeLoop

BOUNDS = Bounds(lease_s=3.0)
K = b"k" * 16
EMPTY = ShardLoad(sessions=0, keys=0, seats=0)


@pytest.fixture
def shard() -> LocalShard:
    return LocalShard(BOUNDS)


def now() -> float:
    return asyncio.get_running_loop().time()


async def claimed(shard: LocalShard, session: str, ticket: int = 1, key: bytes = K) -> int:
    """Claim a key; the token of the run, 0 when it waits."""
    verdicts = await shard.exchange(Batch(session, True, (Claim(ticket, key),)))
    assert verdicts is not None
    (verdict,) = verdicts
    assert isinstance(verdict, Run | Wait)
    return verdict.token if isinstance(verdict, Run) else 0


async def test_a_batch_is_applied_in_order_with_one_verdict_for_each_operation(shard):
    token = await claimed(shard, "a")
    batch = Batch("b", True, (Claim(1, K), Claim(2, b"other"), Leave(1), Settle(K, token + 99, b"x")))

    verdicts = await shard.exchange(batch)

    wait, other, left, settled = verdicts
    assert wait == Wait()
    assert isinstance(other, Run)
    assert (left, settled) == (True, False)


async def test_a_batch_of_a_session_that_is_not_known_is_not_applied_unless_it_opens_one(shard):
    assert await shard.exchange(Batch("a", False, (Claim(1, K),))) is None
    assert shard.load == EMPTY


async def test_whoever_listens_hears_the_answer_at_the_moment_it_is_given(shard):
    token = await claimed(shard, "a")
    await claimed(shard, "b")
    listening = asyncio.create_task(shard.listen("b"))
    await asyncio.sleep(0.1)
    given_at = now()

    await shard.exchange(Batch("a", False, (Settle(K, token, b"answer"),)))

    assert await listening == [Settled(1, b"answer")]
    assert now() == given_at


async def test_an_answer_given_before_anybody_listens_is_kept_until_it_is_heard_once(shard):
    token = await claimed(shard, "a")
    await claimed(shard, "b")
    await shard.exchange(Batch("a", False, (Settle(K, token, b"answer"),)))

    assert await shard.listen("b") == [Settled(1, b"answer")]
    began = now()
    assert await shard.listen("b") == []
    assert now() - began == BOUNDS.listen_s


async def test_listening_ends_by_itself_well_before_the_lease(shard):
    await claimed(shard, "b")
    began = now()

    assert await shard.listen("b") == []

    assert now() - began == BOUNDS.listen_s


async def test_listening_keeps_a_session_alive(shard):
    await claimed(shard, "b")

    for _ in range(20):
        assert await shard.listen("b") == []


async def test_a_silent_owner_lapses_by_itself_and_the_waiter_hears_that_the_key_is_its_own(shard):
    token = await claimed(shard, "a")
    await claimed(shard, "b")
    began = now()
    events: Sequence[Event] = []

    while not events:
        events = await shard.listen("b")

    assert now() - began == BOUNDS.lease_s
    (event,) = events
    assert isinstance(event, Handed)
    assert event.token > token
    assert await shard.exchange(Batch("b", False, (Settle(K, token, b"late"),))) == [False]


async def test_a_run_shorter_lived_than_a_lease_lapses_in_time(shard):
    shard = LocalShard(Bounds(lease_s=3.0, max_run_s=1.0))
    await shard.exchange(Batch("b", True, ()))
    await asyncio.sleep(0.5)
    await claimed(shard, "a")
    await claimed(shard, "b")
    began = now()

    events = await shard.listen("b")
    while not events:
        events = await shard.listen("b")

    assert now() - began == pytest.approx(1.0)


async def test_sessions_that_lapsed_while_the_shard_stood_still_are_told_so(shard):
    await claimed(shard, "b")
    listening = asyncio.create_task(shard.listen("b"))
    await asyncio.sleep(0.1)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)

    loop.pass_time(BOUNDS.lease_s)

    assert await listening is None
    assert await shard.listen("b") is None


async def test_nothing_is_kept_for_sessions_that_fell_silent(shard):
    await claimed(shard, "a")
    await claimed(shard, "b")
    assert shard.load == ShardLoad(sessions=2, keys=1, seats=2)

    await asyncio.sleep(2 * BOUNDS.lease_s)

    assert shard.load == EMPTY


async def test_a_released_key_goes_to_the_waiter(shard):
    token = await claimed(shard, "a")
    await claimed(shard, "b")

    assert await shard.exchange(Batch("a", False, (Release(K, token),))) == [True]

    (event,) = await shard.listen("b")
    assert isinstance(event, Handed)
