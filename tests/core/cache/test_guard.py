"""How a cache leaves a failing store alone, and comes back to it."""

import asyncio

import pytest

from core.cache.alarm import Alarm
from core.cache.guard import Admission, Breaker, Guarded, Guarding, StoreState
from core.errors import StoreUnavailable
from tests.core.cache.faulty import NOW, key


@pytest.fixture
def breaker():
    return Breaker(pause_s=1.0, max_pause_s=4.0, jitter=lambda: 0.0)


@pytest.fixture
def guarded(faulty, warnings):
    return Guarded(faulty, Guarding(deadline_s=0.01, pause_s=1.0), Alarm(warnings.append))


def fail(breaker, now):
    breaker.settle(breaker.admit(now), False, now)


def test_a_closed_breaker_admits_everybody(breaker):
    assert [breaker.admit(NOW) for _ in range(3)] == [Admission.NORMAL] * 3


def test_a_failure_opens_it_for_the_pause(breaker):
    fail(breaker, NOW)

    assert breaker.state is StoreState.OPEN
    assert breaker.admit(NOW + 0.999) is None


def test_after_the_pause_one_caller_probes_and_the_others_are_refused(breaker):
    fail(breaker, NOW)

    assert [breaker.admit(NOW + 1) for _ in range(3)] == [Admission.PROBE, None, None]


def test_a_probe_that_succeeds_closes_it(breaker):
    fail(breaker, NOW)
    breaker.settle(breaker.admit(NOW + 1), True, NOW + 1)

    assert breaker.admit(NOW + 1) is Admission.NORMAL


def test_each_probe_that_fails_doubles_the_pause_up_to_its_limit(breaker):
    now = NOW
    fail(breaker, now)
    for pause in (1, 2, 4, 4):
        assert breaker.admit(now + pause - 0.001) is None
        now += pause
        fail(breaker, now)


def test_after_a_recovery_the_pause_is_short_again(breaker):
    fail(breaker, NOW)
    fail(breaker, NOW + 1)
    breaker.settle(breaker.admit(NOW + 3), True, NOW + 3)
    fail(breaker, NOW + 4)

    assert breaker.admit(NOW + 5) is Admission.PROBE


def test_a_probe_that_is_given_up_leaves_its_place_to_the_next_caller(breaker):
    fail(breaker, NOW)
    breaker.abandon(breaker.admit(NOW + 1))

    assert breaker.admit(NOW + 1) is Admission.PROBE


def test_calls_that_outlive_the_opening_neither_close_it_nor_prolong_it(breaker):
    late_success, late_failure = breaker.admit(NOW), breaker.admit(NOW)
    fail(breaker, NOW)
    breaker.settle(late_success, True, NOW + 0.5)
    breaker.settle(late_failure, False, NOW + 0.9)

    assert breaker.admit(NOW + 0.95) is None
    assert breaker.admit(NOW + 1) is Admission.PROBE


def test_a_call_that_outlives_the_opening_does_not_end_a_probe(breaker):
    late = breaker.admit(NOW)
    fail(breaker, NOW)
    probe = breaker.admit(NOW + 1)
    breaker.settle(late, False, NOW + 1)

    assert breaker.admit(NOW + 1) is None
    breaker.settle(probe, True, NOW + 1)
    assert breaker.admit(NOW + 1) is Admission.NORMAL


def test_a_clock_that_was_set_back_does_not_keep_it_open(breaker):
    fail(breaker, NOW)

    assert breaker.admit(NOW - 3_600) is Admission.PROBE


async def test_a_call_that_takes_too_long_is_given_up_and_opens_both_directions(guarded, faulty):
    faulty.frozen = {"get_many"}

    with pytest.raises(StoreUnavailable, match="no reply within"):
        await guarded.get_many([key(1)], NOW)
    with pytest.raises(StoreUnavailable, match="not asked"):
        await guarded.add(key(1), b"value", None, NOW)
    assert faulty.calls == ["get_many"]
    assert (guarded.counts.errors, guarded.counts.timeouts, guarded.counts.skipped) == (1, 1, 1)


async def test_a_store_that_refuses_writes_is_still_read(guarded, faulty):
    faulty.broken = {"add"}

    with pytest.raises(StoreUnavailable):
        await guarded.add(key(1), b"value", None, NOW)
    assert await guarded.get_many([key(1)], NOW) == {}
    assert (guarded.reading, guarded.writing) == (StoreState.CLOSED, StoreState.OPEN)


async def test_an_error_that_a_store_swallowed_into_something_else_opens_the_breaker_too(guarded, faulty):
    faulty.broken = {"get_many"}
    faulty.error = RuntimeError("not what a store promises")

    with pytest.raises(StoreUnavailable, match="RuntimeError"):
        await guarded.get_many([key(1)], NOW)
    assert guarded.reading is StoreState.OPEN


async def test_of_many_callers_one_probes_a_store_that_was_failing(guarded, faulty):
    faulty.broken = {"get_many"}
    with pytest.raises(StoreUnavailable):
        await guarded.get_many([key(1)], NOW)
    faulty.broken, faulty.frozen = set(), {"get_many"}

    calls = [asyncio.create_task(guarded.get_many([key(1)], NOW + 2)) for _ in range(50)]
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    faulty.thawed.set()
    results = await asyncio.gather(*calls, return_exceptions=True)

    assert faulty.calls.count("get_many") == 2
    assert [result for result in results if not isinstance(result, StoreUnavailable)] == [{}]
    assert await guarded.get_many([key(1)], NOW + 2) == {}


async def test_a_caller_that_is_cancelled_while_probing_does_not_close_the_way_for_ever(guarded, faulty):
    faulty.broken = {"get_many"}
    with pytest.raises(StoreUnavailable):
        await guarded.get_many([key(1)], NOW)
    faulty.broken, faulty.frozen = set(), {"get_many"}
    probing = asyncio.create_task(guarded.get_many([key(1)], NOW + 2))
    while faulty.calls.count("get_many") < 2:
        await asyncio.sleep(0)
    probing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probing
    faulty.frozen = set()

    assert await guarded.get_many([key(1)], NOW + 2) == {}


async def test_a_failing_store_is_warned_of_once_per_interval_with_the_number_of_failures(
    guarded, faulty, warnings
):
    faulty.broken = {"get_many"}
    for moment in range(0, 20, 2):
        with pytest.raises(StoreUnavailable):
            await guarded.get_many([key(1)], NOW + moment)

    assert len(warnings) == 2
    assert "told to fail" in warnings[0]
    assert "more like it since the last warning" in warnings[1]


async def test_failures_within_the_interval_are_told_with_the_next_warning(faulty, warnings):
    alarm = Alarm(warnings.append, every_s=10)
    for moment in (0, 1, 2, 9.9, 10, 11):
        alarm.ring("store", f"at {moment}", NOW + moment)

    assert warnings == ["at 0", "at 10 (3 more like it since the last warning)"]


async def test_kinds_of_trouble_do_not_silence_each_other(warnings):
    alarm = Alarm(warnings.append)
    alarm.ring("store", "one", NOW)
    alarm.ring("corrupt", "two", NOW)

    assert warnings == ["one", "two"]


async def test_a_purge_is_tried_even_where_the_store_was_failing(guarded, faulty):
    faulty.broken = {"add"}
    with pytest.raises(StoreUnavailable):
        await guarded.add(key(1), b"value", None, NOW)

    assert await guarded.add_fence(b"scope", 0, (), NOW) == 1
