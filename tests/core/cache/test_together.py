"""Calls of one turn of the event loop become one call."""

import asyncio

import pytest

from core.cache.together import Together


class Runs:
    """Doubles numbers, a batch at a time, when it is let."""

    def __init__(self):
        self.batches = []
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, numbers):
        self.batches.append(list(numbers))
        await self.open.wait()
        return [2 * number for number in numbers]


@pytest.fixture
def runs():
    return Runs()


async def turn():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_of_one_moment_are_run_at_once_and_each_gets_its_own_result(runs):
    together = Together(runs)

    assert await asyncio.gather(*(together.call(n) for n in range(5))) == [0, 2, 4, 6, 8]
    assert runs.batches == [[0, 1, 2, 3, 4]]


async def test_calls_of_different_moments_are_run_apart(runs):
    together = Together(runs)

    assert [await together.call(n) for n in range(3)] == [0, 2, 4]
    assert runs.batches == [[0], [1], [2]]


async def test_calls_that_come_while_as_many_runs_as_allowed_are_in_progress_go_with_the_next(runs):
    together = Together(runs, at_once=2)
    runs.open.clear()
    calls = []
    for n in range(6):
        calls.append(together.call(n))
        await turn()
    runs.open.set()

    assert await asyncio.gather(*calls) == [0, 2, 4, 6, 8, 10]
    assert runs.batches == [[0], [1], [2, 3, 4, 5]]


async def test_a_caller_that_leaves_before_the_run_is_not_run_for(runs):
    together = Together(runs)
    leaving, staying = together.call(1), together.call(2)
    leaving.cancel()

    assert await staying == 4
    assert runs.batches == [[2]]


async def test_a_caller_that_leaves_during_the_run_disturbs_nobody(runs):
    together = Together(runs)
    runs.open.clear()
    leaving, staying = together.call(1), together.call(2)
    await turn()
    leaving.cancel()
    runs.open.set()

    assert await staying == 4


async def test_nothing_is_run_when_everybody_left(runs):
    together = Together(runs)
    together.call(1).cancel()
    await turn()

    assert runs.batches == []
    assert await together.call(2) == 4


async def test_draining_waits_for_every_run_in_progress_and_for_those_they_start(runs):
    together = Together(runs, at_once=1)
    runs.open.clear()
    calls = [together.call(1)]
    await turn()
    calls.append(together.call(2))
    draining = asyncio.create_task(together.drain())
    await turn()
    assert not draining.done()
    runs.open.set()
    await draining

    assert [call.result() for call in calls] == [2, 4]
