"""Decisions that live longer because they are replayed."""

import pytest

from core.cache.cache import DecisionCache
from core.cache.retention import Retention
from tests.core.cache.faulty import ACME, NOW, WRITES, FaultyStore, key, noul

SLIDING = Retention(ttl_s=160, renew_on_hit=True)


@pytest.fixture
async def cache(store):
    one = DecisionCache(store, SLIDING)
    await one.maintain(NOW)
    return one


async def replay(cache, number, now):
    await cache.refresh_fences(now)
    return cache.peek(key(number), now)


async def live(cache, number, now):
    return await replay(cache, number, now) is not None


async def test_a_replayed_decision_lives_longer_here_and_in_the_store(cache, store):
    await cache.add(noul(1), ACME, NOW)
    await replay(cache, 1, NOW + 100)
    await cache.maintain(NOW + 101)

    assert await live(cache, 1, NOW + 260)
    assert not await live(cache, 1, NOW + 261)
    other = DecisionCache(store)
    assert await other.get(key(1), ACME, NOW + 260.9) is not None
    assert cache.stats().tally.renewals == 1


async def test_a_decision_that_is_not_replayed_is_not_renewed(cache, store):
    await cache.add(noul(1), ACME, NOW)
    await cache.maintain(NOW + 159)

    assert await DecisionCache(store).get(key(1), ACME, NOW + 160) is None


async def test_a_decision_found_in_the_store_is_renewed_by_its_next_replay(cache, store):
    await cache.add(noul(1), ACME, NOW)
    other = DecisionCache(store, SLIDING)
    for _ in range(2):
        await other.get(key(1), ACME, NOW + 100)
    await other.maintain(NOW + 100)

    assert await live(other, 1, NOW + 259)


async def test_a_popular_decision_is_written_sixteen_times_per_time_to_live_at_most():
    store = FaultyStore()
    cache = DecisionCache(store, SLIDING)
    await cache.maintain(NOW)
    await cache.add(noul(1), ACME, NOW)
    for tenth in range(1_600):
        now = NOW + tenth / 10
        await replay(cache, 1, now)
        await cache.maintain(now)

    assert 10 <= store.calls.count("replace") <= 16


async def test_no_renewal_passes_the_deadline_of_the_evidence(cache):
    await cache.add(noul(1, last_expiry=NOW + 200), ACME, NOW)
    for second in range(0, 200, 10):
        await replay(cache, 1, NOW + second)
        await cache.maintain(NOW + second)

    assert await live(cache, 1, NOW + 199.9)
    assert not await live(cache, 1, NOW + 200)


async def test_a_renewed_decision_is_the_same_decision(cache):
    added = await cache.add(noul(1), ACME, NOW)
    await replay(cache, 1, NOW + 100)
    await cache.maintain(NOW + 100)

    renewed = await replay(cache, 1, NOW + 150)
    assert renewed is not None
    assert renewed.replay(NOW + 150) == added.decision.replay(NOW + 150)


async def test_of_two_processes_that_renew_neither_shortens_the_life_the_other_gave(cache, store):
    await cache.add(noul(1), ACME, NOW)
    other = DecisionCache(store, SLIDING)
    await other.get(key(1), ACME, NOW)
    await replay(cache, 1, NOW + 150)
    await cache.maintain(NOW + 150)
    await replay(other, 1, NOW + 100)  # its clock is late
    await other.maintain(NOW + 100)

    assert await DecisionCache(store).get(key(1), ACME, NOW + 309) is not None


async def test_a_renewal_that_the_store_refused_is_tried_again(faulty):
    cache = DecisionCache(faulty, SLIDING)
    await cache.maintain(NOW)
    await cache.add(noul(1), ACME, NOW)
    await replay(cache, 1, NOW + 100)
    faulty.broken = set(WRITES)
    await cache.maintain(NOW + 100)
    faulty.broken = set()
    await cache.maintain(NOW + 110)

    assert await live(cache, 1, NOW + 269)
    assert cache.stats().tally.renewals == 1
