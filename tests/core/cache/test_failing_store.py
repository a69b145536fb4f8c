"""A store that fails costs speed, never a decision; what it returns is not trusted."""

import asyncio
import os
import zlib
from dataclasses import replace

import pytest

from core.cache.alarm import Alarm
from core.cache.cache import DecisionCache, Limits
from core.cache.envelope import VERSION
from core.cache.guard import Guarding, StoreState
from tests.core.cache.faulty import ACME, NOW, OTHER, READS, WRITES, FaultyStore, key, noul, written

QUICK = Guarding(deadline_s=0.01, pause_s=1.0, max_pause_s=1.0, patience_s=0.01)


@pytest.fixture
def cache(faulty, warnings):
    return DecisionCache(faulty, guarding=QUICK, alarm=Alarm(warnings.append))


async def test_a_store_that_refuses_everything_costs_no_answer(cache, faulty):
    faulty.broken = {*READS, *WRITES}

    assert await cache.get(key(1), ACME, NOW) is None
    added = await cache.add(noul(1), ACME, NOW)
    assert (added.decision.answers, added.won, added.stored) == (noul(1).answers, True, False)
    assert cache.stats().tally.unstored == 1
    assert cache.stats().errors > 0


async def test_a_frozen_store_is_waited_for_once_and_then_left_alone(cache, faulty):
    await cache.maintain(NOW)
    faulty.calls.clear()
    faulty.frozen = {*READS, *WRITES}

    assert await cache.get(key(1), ACME, NOW) is None
    assert not (await cache.add(noul(1), ACME, NOW)).stored
    assert await cache.get(key(2), ACME, NOW + 0.5) is None
    assert faulty.calls == ["get_many"]
    assert cache.stats().timeouts == 1
    assert cache.stats().skipped == 2


async def test_a_decision_made_while_the_store_fails_is_replayed_in_this_process(cache, faulty):
    await cache.maintain(NOW)
    faulty.broken = {*READS, *WRITES}
    await cache.add(noul(1), ACME, NOW)

    replayed = cache.peek(key(1), NOW + 5)
    assert replayed is not None
    assert replayed.answers == noul(1).answers
    assert cache.stats().unsettled == 1


async def test_what_the_store_missed_is_brought_to_it_when_it_is_back(cache, faulty):
    await cache.maintain(NOW)
    faulty.broken = {*READS, *WRITES}
    for number in range(200):
        await cache.add(noul(number), ACME, NOW)
    faulty.broken = set()
    await cache.maintain(NOW + 10)

    assert cache.stats().unsettled == 0
    assert await faulty.inner.count(NOW) == 200


async def test_a_decision_stored_first_by_another_replaces_the_one_made_without_the_store(cache, faulty):
    await cache.maintain(NOW)
    faulty.broken = {*READS, *WRITES}
    await cache.add(noul(1, 0.9), ACME, NOW)
    first = await DecisionCache(faulty.inner).add(noul(1, 0.2), ACME, NOW)
    faulty.broken = set()
    await cache.maintain(NOW + 10)

    assert cache.peek(key(1), NOW + 10) == first.decision
    assert cache.stats().tally.conflicts == 1


async def test_a_full_store_still_answers_what_it_holds(cache, faulty):
    await DecisionCache(faulty.inner).add(noul(1), ACME, NOW)
    faulty.broken = {"add", "replace"}

    assert not (await cache.add(noul(2), ACME, NOW)).stored
    assert await cache.get(key(1), ACME, NOW) is not None
    assert (cache.stats().reading, cache.stats().writing) == (StoreState.CLOSED, StoreState.OPEN)


async def test_a_store_that_is_read_only_from_the_start_still_answers_what_it_holds(cache, faulty):
    await DecisionCache(faulty.inner).add(noul(1), ACME, NOW)
    faulty.broken = set(WRITES)
    await cache.maintain(NOW)

    assert await cache.get(key(1), ACME, NOW) is not None
    assert cache.peek(key(1), NOW + 1) is not None


async def test_the_breaker_closes_again_by_itself(cache, faulty):
    faulty.frozen = {*READS, *WRITES}
    await cache.get(key(1), ACME, NOW)
    faulty.frozen = set()
    await cache.maintain(NOW + 2)
    added = await cache.add(noul(1), ACME, NOW + 4)

    assert added.stored
    assert (cache.stats().reading, cache.stats().writing) == (StoreState.CLOSED, StoreState.CLOSED)


async def test_a_failing_store_is_warned_of_once(cache, faulty, warnings):
    faulty.broken = {*READS, *WRITES}
    for moment in range(8):
        await cache.get(key(moment), ACME, NOW + moment)
        await cache.add(noul(moment), ACME, NOW + moment)

    assert len(warnings) == 1
    assert "decisions go on without it" in warnings[0]


async def test_two_hundred_requests_in_flight_when_the_store_freezes_all_get_an_answer(cache, faulty):
    await cache.maintain(NOW)
    faulty.frozen = {*READS, *WRITES}

    async def request(number):
        found = await cache.get(key(number), ACME, NOW)
        return found or (await cache.add(noul(number), ACME, NOW)).decision

    answers = await asyncio.gather(*(request(number) for number in range(200)))

    assert [answer.key for answer in answers] == [key(number) for number in range(200)]


def zip_bomb():
    return b"\xd3p\x01\x01" + bytes(64) + zlib.compress(bytes(2**26), wbits=-15)


def of_another_tenant():
    return written(noul(1), "other")


def of_another_key():
    return written(noul(2), "acme")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\0",
        os.urandom(200),
        zlib.compress(b'{"a":1}'),
        zip_bomb(),
        of_another_key(),
        of_another_tenant(),
    ],
    ids=["empty", "zero", "random", "compressed JSON", "bomb", "of another key", "of another tenant"],
)
async def test_a_value_that_is_no_decision_is_a_miss_once_and_is_replaced(cache, faulty, warnings, value):
    await faulty.inner.add(key(1), value, None, NOW)

    assert await cache.get(key(1), ACME, NOW) is None
    assert await cache.get(key(1), ACME, NOW) is None
    oddities = cache.stats().oddities
    assert oddities.corrupt + oddities.foreign == 1
    assert len(warnings) == 1

    added = await cache.add(noul(1), ACME, NOW)
    assert (added.won, added.stored) == (True, True)
    assert await DecisionCache(faulty.inner).get(key(1), ACME, NOW) == added.decision


async def test_a_value_that_is_no_decision_gives_way_to_one_that_is_added_over_it(cache, faulty):
    await faulty.inner.add(key(1), b"nonsense", None, NOW)

    added = await cache.add(noul(1), ACME, NOW)

    assert (added.won, added.stored) == (True, True)
    assert await DecisionCache(faulty.inner).get(key(1), ACME, NOW) == added.decision


async def test_a_value_is_removed_only_while_it_is_still_the_same(faulty):
    class Mixed(FaultyStore):
        async def get_many(self, keys, now):
            return dict.fromkeys(keys, written(noul(9), "acme"))  # somebody else's reply

    mixed = Mixed(faulty.inner)
    stored = await DecisionCache(faulty.inner).add(noul(1), ACME, NOW)
    cache = DecisionCache(mixed)

    assert await cache.get(key(1), ACME, NOW) is None
    assert cache.stats().oddities.foreign == 1
    assert await DecisionCache(faulty.inner).get(key(1), ACME, NOW) == stored.decision


async def test_a_value_of_a_later_version_is_a_miss_and_is_left_alone(cache, faulty, warnings):
    newer = b"\xd3p" + bytes([VERSION + 1]) + b"something that only the later version reads"
    await faulty.inner.add(key(1), newer, None, NOW)

    assert await cache.get(key(1), ACME, NOW) is None
    added = await cache.add(noul(1), ACME, NOW)
    assert (added.won, added.stored) == (True, False)
    assert await faulty.inner.get_many([key(1)], NOW) == {key(1): newer}
    assert cache.stats().oddities.newer == 2
    assert len(warnings) == 1


async def test_a_stored_decision_about_other_options_gives_way_to_the_right_one(cache, faulty):
    wrong = replace(
        noul(1),
        answers=b'{"q":{"type":"choice","choice":"a","probabilities":{"a":1.0},"confidence":1.0}}',
        margins={"q": 1.0},
    )
    await DecisionCache(faulty.inner).add(wrong, ACME, NOW)

    added = await cache.add(noul(1), ACME, NOW)
    assert (added.won, added.decision.answers) == (True, noul(1).answers)


async def test_a_store_that_keeps_changing_costs_no_answer(faulty):
    class Restless(FaultyStore):
        async def add(self, key, value, expires_at, now):
            return os.urandom(50)

    added = await DecisionCache(Restless(faulty.inner)).add(noul(1), ACME, NOW)

    assert (added.won, added.stored) == (True, False)


async def test_memory_is_not_replayed_for_long_when_nobody_says_what_was_purged(faulty, warnings):
    limits = Limits(grace_s=10.0)
    cache = DecisionCache(faulty, limits=limits, guarding=QUICK, alarm=Alarm(warnings.append))
    await cache.add(noul(1), ACME, NOW)
    await cache.maintain(NOW)
    faulty.broken = {*READS, *WRITES}

    assert cache.peek(key(1), NOW + 9.9) is not None
    assert cache.peek(key(1), NOW + 10) is None
    await cache.add(noul(2), ACME, NOW + 10)
    assert (
        cache.peek(key(2), NOW + 19.9) is not None
    )  # made after any purge it could have missed before NOW + 10
    assert cache.peek(key(2), NOW + 20) is None

    faulty.broken = set()
    await cache.maintain(NOW + 30)
    assert cache.peek(key(1), NOW + 30) is not None


async def test_memory_may_be_replayed_for_ever_without_the_store_if_asked_for(faulty):
    cache = DecisionCache(faulty, limits=Limits(grace_s=None), guarding=QUICK)
    await cache.add(noul(1), ACME, NOW)
    faulty.broken = {*READS, *WRITES}

    assert cache.peek(key(1), NOW + 1e6) is not None


async def test_a_store_that_does_not_say_what_was_purged_is_not_believed_for_long(cache, faulty):
    await DecisionCache(faulty.inner).add(noul(1), ACME, NOW)
    faulty.broken = {"read_fences"}

    assert await cache.get(key(1), ACME, NOW) is None


async def test_tenants_do_not_see_each_other_even_where_the_store_mixes_them_up(faulty):
    await faulty.inner.add(key(1), written(noul(1), "acme"), None, NOW)
    cache = DecisionCache(faulty)

    assert await cache.get(key(1), OTHER, NOW) is None
    assert cache.stats().oddities.foreign == 1
