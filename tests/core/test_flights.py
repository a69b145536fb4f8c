"""Callers join a flight, leave it, and never disturb one another; nothing is ever left behind."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest

from core.errors import DeadlineExceeded, EngineUnavailable
from core.flights import Landed, SingleFlight


class Runway:
    """Work that counts its starts, and lands when the test says so."""

    def __init__(self) -> None:
        self.starts = 0
        self.started = asyncio.Event()
        self.clear = asyncio.Event()
        self.failure: BaseException | None = None

    async def __call__(self) -> int:
        self.starts += 1
        number = self.starts
        self.started.set()
        await self.clear.wait()
        if self.failure is not None:
            raise self.failure
        return number


@pytest.fixture
def runway() -> Runway:
    return Runway()


@pytest.fixture
def flights() -> SingleFlight[str, int]:
    return SingleFlight(max_s=60.0)


@pytest.fixture(autouse=True)
async def nothing_is_left_behind(caplog, flights):
    """After each test: no flight, no waiter, no task, and no complaint of the event loop about one."""
    yield
    await turns()
    assert len(flights) == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}
    gc.collect()
    complaints = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert complaints == []


async def turns(count: int = 3) -> None:
    """Let everything that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


def caller(
    flights: SingleFlight[str, int], work: Callable[[], Awaitable[int]]
) -> "asyncio.Task[Landed[int]]":
    return asyncio.create_task(flights.run("key", work))


async def test_callers_of_one_key_share_one_run(flights, runway):
    callers = [caller(flights, runway) for _ in range(5)]
    await runway.started.wait()
    assert flights.waiting("key") == 5

    runway.clear.set()
    landed = await asyncio.gather(*callers)

    assert [flight.value for flight in landed] == [1] * 5
    assert [flight.joined for flight in landed] == [False] + [True] * 4


async def test_callers_of_other_keys_have_runs_of_their_own(flights, runway):
    runway.clear.set()

    landed = await asyncio.gather(*(flights.run(f"key {i}", runway) for i in range(3)))

    assert sorted(flight.value for flight in landed) == [1, 2, 3]
    assert not any(flight.joined for flight in landed)


async def test_after_landing_the_next_caller_starts_a_new_run(flights, runway):
    runway.clear.set()

    assert (await flights.run("key", runway)).value == 1
    assert await flights.run("key", runway) == Landed(2, joined=False)


async def test_a_result_of_none_is_a_result(runway):
    async def nothing() -> None:
        runway.starts += 1

    flights: SingleFlight[str, None] = SingleFlight(max_s=60.0)

    assert (await asyncio.gather(flights.run("k", nothing), flights.run("k", nothing)))[1] == Landed(
        None, joined=True
    )
    assert runway.starts == 1


class TestLeaving:
    async def test_the_caller_who_started_may_leave_and_the_others_get_the_value(self, flights, runway):
        owner = caller(flights, runway)
        await runway.started.wait()
        waiter = caller(flights, runway)
        await turns()

        owner.cancel()
        await turns()
        late = caller(flights, runway)
        await turns()
        assert (owner.cancelled(), flights.waiting("key"), runway.starts) == (True, 2, 1)
        runway.clear.set()

        assert await waiter == await late == Landed(1, joined=True)

    async def test_a_waiter_may_leave_and_neither_the_owner_nor_the_others_notice(self, flights, runway):
        owner, leaver, waiter = (caller(flights, runway) for _ in range(3))
        await runway.started.wait()

        leaver.cancel()
        await turns()
        runway.clear.set()

        assert (await owner, await waiter) == (Landed(1, joined=False), Landed(1, joined=True))
        assert leaver.cancelled()

    async def test_after_a_waiter_left_a_late_caller_joins_the_same_run(self, flights, runway):
        owner, leaver = caller(flights, runway), caller(flights, runway)
        await runway.started.wait()
        leaver.cancel()
        await turns()

        late = caller(flights, runway)
        await turns()
        runway.clear.set()

        assert (await late).value == (await owner).value == 1
        assert runway.starts == 1

    async def test_when_all_have_left_the_run_still_finishes_and_a_late_caller_finds_it(
        self, flights, runway
    ):
        callers = [caller(flights, runway) for _ in range(3)]
        await runway.started.wait()
        for leaver in callers:
            leaver.cancel()
        await turns()
        assert (len(flights), flights.waiting("key")) == (1, 0)

        late = caller(flights, runway)
        await turns()
        runway.clear.set()

        assert await late == Landed(1, joined=True)

    async def test_when_all_have_left_and_nobody_came_the_run_ends_by_itself(self, flights, runway):
        alone = caller(flights, runway)
        await runway.started.wait()
        alone.cancel()
        await turns()

        runway.clear.set()
        await flights.drain()

        assert (len(flights), runway.starts) == (0, 1)

    async def test_a_failure_that_nobody_waits_for_troubles_nobody(self, flights, runway):
        alone = caller(flights, runway)
        await runway.started.wait()
        alone.cancel()
        await turns()
        runway.failure = ValueError("nobody hears this")

        runway.clear.set()
        await flights.drain()

        assert len(flights) == 0

    async def test_a_caller_may_leave_in_the_very_turn_in_which_the_run_lands(self, flights, runway):
        leaver, waiter = caller(flights, runway), caller(flights, runway)
        await runway.started.wait()

        runway.clear.set()
        leaver.cancel()  # both wake in the next turn, the run first

        assert (await waiter).value == 1
        await asyncio.wait([leaver])

    @pytest.mark.parametrize("failing", [False, True])
    async def test_a_caller_may_leave_after_it_was_told_and_before_it_woke(self, flights, runway, failing):
        told = caller(flights, runway)
        await runway.started.wait()
        runway.failure = ValueError("told") if failing else None
        runway.clear.set()
        while len(flights):
            await asyncio.sleep(0)

        told.cancel()

        await asyncio.wait([told])
        assert told.cancelled()

    async def test_a_caller_that_gives_up_by_a_timeout_of_its_own_leaves_alone(self, flights, runway):
        waiter = caller(flights, runway)
        await runway.started.wait()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(flights.run("key", runway), timeout=0)
        runway.clear.set()

        assert (await waiter).value == 1

    async def test_a_caller_cancelled_before_its_first_step_starts_nothing(self, flights, runway):
        caller(flights, runway).cancel()
        await turns()

        assert (runway.starts, len(flights)) == (0, 0)


class TestFailing:
    async def test_a_failure_reaches_everyone_who_waited_and_is_forgotten(self, flights, runway):
        runway.failure = ValueError("first try")
        callers = [caller(flights, runway) for _ in range(3)]
        await runway.started.wait()

        runway.clear.set()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)

        assert [str(outcome) for outcome in outcomes] == ["first try"] * 3
        runway.failure = None
        assert await flights.run("key", runway) == Landed(2, joined=False)

    async def test_work_that_fails_before_it_ever_waits_leaves_nothing(self, flights):
        async def broken() -> int:
            raise RuntimeError("at once")

        for _ in range(2):
            with pytest.raises(RuntimeError, match="at once"):
                await flights.run("key", broken)
            assert len(flights) == 0

    async def test_work_that_cannot_even_be_called_fails_its_callers(self, flights):
        def unbuildable() -> Awaitable[int]:
            raise TypeError("no coroutine")

        with pytest.raises(TypeError, match="no coroutine"):
            await flights.run("key", unbuildable)

    async def test_a_cancellation_inside_the_work_is_an_error_for_its_callers_and_not_a_cancellation(
        self, flights, runway
    ):
        runway.failure = asyncio.CancelledError()
        callers = [caller(flights, runway) for _ in range(2)]
        await runway.started.wait()

        runway.clear.set()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [EngineUnavailable] * 2
        runway.failure = None
        assert (await flights.run("key", runway)).value == 2

    async def test_a_timeout_of_the_work_itself_is_not_taken_for_the_limit_of_the_flight(self, flights):
        async def impatient() -> int:
            raise TimeoutError("its own")

        with pytest.raises(TimeoutError, match="its own"):
            await flights.run("key", impatient)


class TestHanging:
    async def test_a_run_that_never_ends_is_ended_and_its_callers_are_told(self):
        flights: SingleFlight[str, int] = SingleFlight(max_s=0.01)
        ended = asyncio.Event()

        async def hang() -> int:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return 0

        outcomes = await asyncio.gather(*(flights.run("key", hang) for _ in range(3)), return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [DeadlineExceeded] * 3
        assert str(outcomes[0]) == "no answer within 0.01 s; retry shortly"
        assert ended.is_set()
        assert len(flights) == 0

    async def test_a_hang_that_all_callers_left_is_ended_all_the_same(self):
        flights: SingleFlight[str, int] = SingleFlight(max_s=0.01)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(flights.run("key", asyncio.Event().wait), timeout=0.001)
        await flights.drain()

        assert len(flights) == 0

    async def test_work_that_answers_its_cancellation_with_another_error_exceeded_its_time_too(self):
        flights: SingleFlight[str, int] = SingleFlight(max_s=0.01)

        async def stubborn() -> int:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("could not stop cleanly") from None
            return 0

        with pytest.raises(DeadlineExceeded):
            await flights.run("key", stubborn)


class TestContext:
    async def test_the_work_inherits_nothing_from_the_caller_who_happened_to_start_it(self, flights):
        request: ContextVar[str] = ContextVar("request", default="nobody's")
        request.set("of the first caller")

        async def look() -> str:
            return request.get()

        anything: SingleFlight[str, str] = SingleFlight(max_s=60.0)

        assert (await anything.run("key", look)).value == "nobody's"
        assert request.get() == "of the first caller"


class TestDraining:
    async def test_waits_for_every_flight_and_for_those_that_begin_meanwhile(self, flights, runway):
        first = caller(flights, runway)
        await runway.started.wait()
        drained = asyncio.create_task(flights.drain())
        second = asyncio.create_task(flights.run("other", runway))
        await turns()
        assert not drained.done()

        runway.clear.set()

        await asyncio.gather(first, second, drained)
        assert len(flights) == 0

    async def test_of_nothing_is_at_once(self, flights):
        await flights.drain()

    async def test_ends_when_the_last_flight_fails(self, flights, runway):
        runway.failure = ValueError("x")
        alone = caller(flights, runway)
        await runway.started.wait()
        runway.clear.set()

        await flights.drain()

        with pytest.raises(ValueError, match="x"):
            await alone


async def test_ten_thousand_callers_join_one_run_and_half_of_them_leave(flights, runway):
    callers = [caller(flights, runway) for _ in range(10_000)]
    await runway.started.wait()
    assert flights.waiting("key") == 10_000

    for leaver in callers[::2]:
        leaver.cancel()
    await turns()
    assert (flights.waiting("key"), runway.starts) == (5_000, 1)
    # One future for each who waits, and one task for the work: nothing else grows with the callers.
    assert len(asyncio.all_tasks()) == 5_000 + 2
    runway.clear.set()
    outcomes = await asyncio.gather(*callers, return_exceptions=True)

    assert [outcome.value for outcome in outcomes[1::2] if isinstance(outcome, Landed)] == [1] * 5_000
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[::2])


async def test_joining_and_leaving_call_the_event_loop_as_often_however_many_wait(flights, runway):
    """O(1) by structure: a caller that leaves among 1,000 touches no other waiter."""
    crowd = [caller(flights, runway) for _ in range(1_000)]
    await runway.started.wait()
    others = [flights.waiting("key")]

    for _ in range(3):
        one = caller(flights, runway)
        await turns(1)
        others.append(flights.waiting("key"))
        one.cancel()
        await turns(1)
        others.append(flights.waiting("key"))

    assert others == [1_000, 1_001, 1_000, 1_001, 1_000, 1_001, 1_000]
    assert not any(task.done() for task in crowd)
    runway.clear.set()
    await asyncio.gather(*crowd)
