"""What a flight does for its other callers when it fails, and when too many come."""

import asyncio

import pytest

from core.errors import DeadlineExceeded, Overloaded
from core.flights import SingleFlight


def always(_error):
    return True


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


class Work:
    """Fails as often as it is told, then answers; each attempt waits for a word."""

    def __init__(self, failures):
        self.failures = failures
        self.attempts = 0
        self.go = asyncio.Event()

    async def __call__(self):
        self.attempts += 1
        await self.go.wait()
        if self.attempts <= self.failures:
            raise ValueError(f"attempt {self.attempts}")
        return self.attempts


async def callers(flights, work, count):
    tasks = [asyncio.create_task(flights.run("key", work)) for _ in range(count)]
    await settled()
    return tasks


async def outcomes(tasks):
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_failure_is_the_first_callers_and_another_try_answers_the_rest():
    flights: SingleFlight[str, int] = SingleFlight(60.0, is_worth_another_try=always)
    work = Work(failures=1)
    tasks = await callers(flights, work, 4)

    work.go.set()

    first, *others = await outcomes(tasks)
    assert isinstance(first, ValueError)
    assert [landed.value for landed in others] == [2, 2, 2]
    assert work.attempts == 2
    assert len(flights) == 0


async def test_a_second_failure_is_everybodys_and_there_is_no_third_try():
    flights: SingleFlight[str, int] = SingleFlight(60.0, is_worth_another_try=always)
    work = Work(failures=9)
    tasks = await callers(flights, work, 4)

    work.go.set()

    assert [str(error) for error in await outcomes(tasks)] == ["attempt 1"] + ["attempt 2"] * 3
    assert work.attempts == 2


async def test_a_lone_caller_fails_at_once():
    work = Work(failures=9)
    work.go.set()
    flights: SingleFlight[str, int] = SingleFlight(60.0, is_worth_another_try=always)

    with pytest.raises(ValueError, match="attempt 1"):
        await flights.run("key", work)

    assert work.attempts == 1


async def test_when_the_first_caller_left_the_next_in_line_takes_the_failure():
    flights: SingleFlight[str, int] = SingleFlight(60.0, is_worth_another_try=always)
    work = Work(failures=1)
    first, second, third = await callers(flights, work, 3)
    first.cancel()
    await settled()

    work.go.set()

    results = await outcomes([second, third])
    assert isinstance(results[0], ValueError)
    assert results[1].value == 2


async def test_a_failure_that_is_not_worth_another_try_is_everybodys():
    flights: SingleFlight[str, int] = SingleFlight(60.0, is_worth_another_try=lambda _error: False)
    work = Work(failures=1)
    tasks = await callers(flights, work, 3)

    work.go.set()

    assert all(isinstance(error, ValueError) for error in await outcomes(tasks))


async def test_both_tries_together_are_bounded():
    async def fails_then_hangs(attempts=[]):  # noqa: B006  one count for both tries
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError
        await asyncio.Event().wait()

    flights: SingleFlight[str, int] = SingleFlight(0.05, is_worth_another_try=always)
    tasks = await callers(flights, fails_then_hangs, 2)

    _, second = await outcomes(tasks)

    assert isinstance(second, DeadlineExceeded)


async def test_a_caller_beyond_the_bound_is_refused_and_the_others_get_their_answer():
    flights: SingleFlight[str, int] = SingleFlight(60.0, max_waiting=3)
    work = Work(failures=0)
    tasks = await callers(flights, work, 3)

    with pytest.raises(Overloaded):
        await flights.run("key", work)

    work.go.set()
    assert [landed.value for landed in await outcomes(tasks)] == [1, 1, 1]


async def test_a_place_that_was_given_up_is_free_at_once():
    flights: SingleFlight[str, int] = SingleFlight(60.0, max_waiting=2)
    work = Work(failures=0)
    stays, leaves = await callers(flights, work, 2)
    leaves.cancel()
    await settled()

    [joins] = await callers(flights, work, 1)
    work.go.set()

    assert [landed.value for landed in await outcomes([stays, joins])] == [1, 1]
    assert flights.waiting("key") == 0
