"""What a cache does while its store works."""

import asyncio

from core.cache.alarm import Alarm
from core.cache.cache import DecisionCache, Limits
from core.cache.retention import Retention
from core.cache.stores.memory import MemoryStore
from core.contract.questions import Choice, Noul
from tests.core.cache.faulty import ACME, NOW, OTHER, FaultyStore, key, noul

QUESTIONS = {"q": Noul("is it?", None, None)}


async def test_a_decision_that_was_never_made_is_a_miss(cache):
    assert cache.peek(key(1), NOW) is None
    assert await cache.get(key(1), ACME, NOW) is None
    assert cache.stats().tally.misses == 1


async def test_a_decision_is_replayed_from_memory_after_it_was_added(cache):
    added = await cache.add(noul(1), ACME, NOW)
    await cache.maintain(NOW)

    assert (added.won, added.stored) == (True, True)
    assert cache.peek(key(1), NOW + 5) == added.decision
    assert cache.stats().tally.hits_memory == 1


async def test_another_process_replays_the_same_bytes_from_the_store(store, cache):
    added = await cache.add(noul(1, input_tokens=7), ACME, NOW + 0.1234)

    found = await DecisionCache(store).get(key(1), ACME, NOW + 5)

    assert found is not None
    assert found == added.decision
    assert found.replay(NOW + 5) == added.decision.replay(NOW + 5)


async def test_a_decision_found_in_the_store_is_in_memory_from_then_on(store, cache):
    await cache.add(noul(1), ACME, NOW)
    other = DecisionCache(store)
    await other.get(key(1), ACME, NOW)

    assert other.peek(key(1), NOW) is not None
    assert other.stats().tally.hits_store == 1


async def test_of_two_writers_both_get_the_decision_stored_first(store, cache):
    other = DecisionCache(store)

    first = await cache.add(noul(1, 0.9), ACME, NOW)
    second = await other.add(noul(1, 0.2), ACME, NOW + 1)

    assert second.decision == first.decision
    assert (second.won, second.stored) == (False, True)
    assert [one.stats().tally.conflicts for one in (cache, other)] == [0, 1]


async def test_a_slow_writer_takes_over_the_decision_that_was_stored_meanwhile(store, cache):
    slow, fast = noul(1, 0.9, epoch=cache.epoch), noul(1, 0.2)
    await DecisionCache(store).add(fast, ACME, NOW)
    await cache.add(slow, ACME, NOW + 30)
    await cache.maintain(NOW + 30)

    survivor = cache.peek(key(1), NOW + 31)
    assert survivor is not None
    assert survivor.answers == fast.answers


async def test_an_expired_decision_gives_way_to_the_next(store):
    cache = DecisionCache(store, Retention(ttl_s=60))
    await cache.add(noul(1, 0.9), ACME, NOW)

    assert await cache.get(key(1), ACME, NOW + 60) is None
    added = await cache.add(noul(1, 0.2), ACME, NOW + 60)
    assert (added.won, added.stored) == (True, True)
    assert await DecisionCache(store).get(key(1), ACME, NOW + 61) == added.decision


async def test_a_decision_is_replayed_until_the_instant_of_its_expiry(store):
    cache = DecisionCache(store, Retention(ttl_s=60))
    await cache.add(noul(1), ACME, NOW)
    await cache.maintain(NOW + 59)

    assert cache.peek(key(1), NOW + 59.999) is not None
    assert cache.peek(key(1), NOW + 60) is None


async def test_ten_thousand_races_have_one_answer_each_and_one_conflict():
    store = MemoryStore()
    left, right = DecisionCache(store), DecisionCache(store)

    for number in range(10_000):
        one, other = await asyncio.gather(
            left.add(noul(number, 0.9), ACME, NOW), right.add(noul(number, 0.1), ACME, NOW)
        )
        assert one.decision.answers == other.decision.answers
        assert one.won is not other.won

    assert left.stats().tally.conflicts + right.stats().tally.conflicts == 10_000


async def test_lookups_of_one_moment_reach_the_store_as_one():
    faulty = FaultyStore()
    cache = DecisionCache(faulty)
    await cache.maintain(NOW)
    for number in range(64):
        await DecisionCache(faulty.inner).add(noul(number), ACME, NOW)

    found = await asyncio.gather(*(cache.get(key(number), ACME, NOW) for number in range(64)))

    assert None not in found
    assert faulty.calls.count("get_many") == 1


async def test_a_caller_that_leaves_does_not_disturb_the_others_of_its_lookup():
    faulty = FaultyStore()
    faulty.frozen = {"get_many"}
    cache = DecisionCache(faulty)
    await DecisionCache(faulty.inner).add(noul(1), ACME, NOW)
    await DecisionCache(faulty.inner).add(noul(2), ACME, NOW)
    leaving, staying = (asyncio.create_task(cache.get(key(n), ACME, NOW)) for n in (1, 2))
    while "get_many" not in faulty.calls:
        await asyncio.sleep(0)
    leaving.cancel()
    faulty.thawed.set()

    assert await staying is not None


async def test_memory_is_bounded_and_keeps_what_was_replayed_last(store):
    cache = DecisionCache(store, limits=Limits(memory_entries=3))
    await cache.maintain(NOW)
    for number in (1, 2, 3):
        await cache.add(noul(number), ACME, NOW)
    cache.peek(key(1), NOW)
    await cache.add(noul(4), ACME, NOW)

    assert [cache.peek(key(n), NOW) is not None for n in (1, 2, 3, 4)] == [True, False, True, True]
    assert cache.stats().evictions == 1


async def test_memory_is_bounded_in_bytes_too(store):
    cache = DecisionCache(store, limits=Limits(memory_bytes=20_000))
    for number in range(100):
        await cache.add(noul(number), ACME, NOW)

    assert 5 < cache.stats().entries < 20


async def test_a_decision_about_other_questions_is_not_replayed_and_is_replaced(store, cache, warnings):
    await cache.add(noul(1), ACME, NOW)
    other = DecisionCache(store)
    asked = {"q": Choice(None, ("a", "b"), (None, None))}

    assert await other.get(key(1), ACME, NOW, asked) is None
    assert other.stats().oddities.misfits == 1
    assert await DecisionCache(store).get(key(1), ACME, NOW) is None


async def test_a_decision_about_the_questions_asked_is_replayed(store, cache):
    await cache.add(noul(1), ACME, NOW)

    assert await DecisionCache(store).get(key(1), ACME, NOW, QUESTIONS) is not None


async def test_a_time_to_live_of_zero_keeps_nothing_anywhere(store):
    cache = DecisionCache(store, Retention(ttl_s=0))
    added = await cache.add(noul(1), ACME, NOW)

    assert (added.won, added.stored) == (True, False)
    assert await cache.get(key(1), ACME, NOW) is None
    assert await store.count(NOW) == 0
    assert cache.stats().tally.not_kept == 1


async def test_a_decision_whose_evidence_expired_meanwhile_is_returned_and_not_stored(store, cache):
    added = await cache.add(noul(1, last_expiry=NOW), ACME, NOW)

    assert added.decision.answers == noul(1).answers
    assert not added.stored
    assert await store.count(NOW) == 0


async def test_no_decision_outlives_its_evidence(store):
    cache = DecisionCache(store, Retention(ttl_s=3_600))
    await cache.add(noul(1, last_expiry=NOW + 10), ACME, NOW)

    assert await cache.get(key(1), ACME, NOW + 9.9) is not None
    assert await cache.get(key(1), ACME, NOW + 10) is None
    assert await DecisionCache(store).get(key(1), ACME, NOW + 10) is None


async def test_a_decision_larger_than_any_response_is_returned_and_not_stored(store, cache):
    huge = noul(1)
    answers = b'{"q":{"type":"noul","noul":0.9,"x":"' + b"a" * 5_000_000 + b'"}}'
    added = await cache.add(
        type(huge)(key=huge.key, model="fake", answers=answers, margins={"q": 0.8}), ACME, NOW
    )

    assert (added.won, added.stored) == (True, False)
    assert cache.stats().tally.too_large == 1


async def test_numbers_are_kept_per_tenant(cache):
    await cache.maintain(NOW)
    await cache.add(noul(1), ACME, NOW)
    await cache.add(noul(2), OTHER, NOW)
    cache.peek(key(1), NOW)
    await cache.get(key(3), OTHER, NOW)

    assert (cache.stats("acme").hits, cache.stats("acme").tally.misses) == (1, 0)
    assert (cache.stats("other").hits, cache.stats("other").tally.misses) == (0, 1)
    assert (cache.stats().hits, cache.stats().tally.misses, cache.stats().tally.added) == (1, 1, 2)
    assert cache.stats("nobody").hits == 0


async def test_maintenance_removes_what_has_expired_from_the_store(store):
    cache = DecisionCache(store, Retention(ttl_s=60))
    for number in range(5):
        await cache.add(noul(number), ACME, NOW)
    await cache.maintain(NOW + 61)

    assert await store.prune(NOW + 61) == 0
    assert await cache.count(NOW) == 0


async def test_a_retention_function_that_fails_costs_the_memory_of_a_decision_and_no_answer(store):
    def function(_decision):
        raise ZeroDivisionError

    cache = DecisionCache(store, Retention(function=function))
    added = await cache.add(noul(1), ACME, NOW)

    assert (added.decision.answers, added.stored) == (noul(1).answers, False)
    assert cache.stats().tally.retention_errors == 1


async def test_maintenance_goes_on_whatever_happens(faulty, warnings):
    moments = iter([NOW, NOW + 1, NOW + 2])
    reached = asyncio.Event()

    def clock():
        moment = next(moments, None)
        if moment is None:
            reached.set()
            return NOW + 3
        return moment

    cache = DecisionCache(faulty, alarm=Alarm(warnings.append))
    keeping_up = asyncio.create_task(cache.keep_up(clock, every_s=0.0))
    await reached.wait()
    keeping_up.cancel()

    assert faulty.calls.count("read_fences") >= 3
    assert warnings == []


async def test_a_process_that_nobody_maintains_keeps_its_fences_fresh_by_itself(store):
    cache = DecisionCache(store)
    await cache.add(noul(1), ACME, NOW)
    for second in range(0, 100, 5):
        assert await cache.get(key(1), ACME, NOW + second) is not None
