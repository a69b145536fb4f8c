import asyncio

import pytest

from core.contract.questions import QuestionReader
from core.engines.base import Item, Reading
from core.engines.fake import FakeEngine
from core.errors import EngineFailed, EngineUnavailable
from deployments import spot_checks
from deployments.spot_checks import SpotChecks

QUESTION = QuestionReader().read("q", {"type": "noul", "instructions": "Is it?"})
assert QUESTION is not None


def unwanted(reading):
    raise AssertionError(reading)


def item(number=0):
    assert QUESTION is not None
    return Item(f"text {number}", QUESTION)


async def test_what_the_engine_says_is_told():
    told: list[Reading] = []
    checks = SpotChecks(FakeEngine(), 5.0)
    checks.ask(item(), told.append)

    await checks.drain()

    assert [sum(reading.probabilities) for reading in told] == [pytest.approx(1.0)]


@pytest.mark.parametrize("error", [EngineFailed("nonsense"), EngineUnavailable("none is up")])
async def test_an_engine_that_fails_leaves_the_check_out(error):
    checks = SpotChecks(FakeEngine(fails=lambda item: error), 5.0)
    checks.ask(item(), unwanted)

    await checks.drain()

    assert checks.left_out == 1


async def test_an_engine_that_does_not_answer_in_time_leaves_the_check_out():
    checks = SpotChecks(FakeEngine(gate=asyncio.Event()), 0.01)
    checks.ask(item(), unwanted)

    await checks.drain()

    assert checks.left_out == 1


async def test_the_engine_is_asked_few_checks_at_a_time_and_what_is_too_much_is_left_out(monkeypatch):
    monkeypatch.setattr(spot_checks, "MAX_WAITING", 10)
    gate = asyncio.Event()
    engine, told = FakeEngine(gate=gate), list[Reading]()
    checks = SpotChecks(engine, 5.0)
    for number in range(15):
        checks.ask(item(number), told.append)
    await asyncio.sleep(0.01)
    at_once = engine.runs
    gate.set()

    await checks.drain()

    assert (at_once, checks.left_out, len(told)) == (spot_checks.AT_ONCE, 5, 10)
