import asyncio
import pickle

import pytest

from core.contract.questions import Noul
from core.engines.base import Item, Reading
from core.engines.fake import FakeEngine
from core.engines.registry import EngineSpec
from core.errors import EngineFailed, EngineUnavailable, FingerprintMismatch
from deployments.model import Model

FAKE = EngineSpec(kind="fake")
ITEMS = [Item(state, Noul("is it?", None, None)) for state in ("a", "b", "c")]


def model_over(engine):
    return Model(FAKE, engine.fingerprint, load=lambda _spec: engine)


class Foreign(Exception):
    """What a runtime may raise: it holds something that cannot be pickled."""

    def __init__(self):
        super().__init__(lambda: None)


async def test_a_model_answers_what_its_engine_answers():
    assert await Model(FAKE, "fake-0").answer(ITEMS) == await FakeEngine().answer(ITEMS)


def test_a_model_that_loads_another_engine_than_the_app_was_built_for_does_not_start():
    with pytest.raises(FingerprintMismatch) as caught:
        Model(EngineSpec(kind="fake", seed=1), "fake-0")

    assert (caught.value.expected, caught.value.found) == ("fake-0", "fake-1")


async def test_an_error_in_the_place_of_a_reading_crosses_to_another_process_and_the_others_are_answered():
    errors = {"a": EngineFailed("no"), "c": Foreign()}
    model = model_over(FakeEngine(fails=lambda item: errors.get(item.state)))

    first, second, third = pickle.loads(pickle.dumps(await model.answer(ITEMS)))

    assert str(first) == str(errors["a"])
    assert isinstance(second, Reading)
    assert isinstance(third, EngineFailed)
    assert third.why == "Foreign"


async def test_a_model_is_healthy_while_its_engine_is():
    await Model(FAKE, "fake-0").check_health()


async def test_a_model_whose_engine_can_answer_no_more_is_not_healthy():
    class Dead(FakeEngine):
        async def check_health(self):
            raise EngineUnavailable("the worker ended")

    with pytest.raises(EngineUnavailable):
        await model_over(Dead()).check_health()


async def test_when_serve_takes_leave_of_a_model_its_engine_finishes_what_it_took():
    class Closing(FakeEngine):
        closed = False

        async def close(self):
            self.closed = True

    engine = Closing()
    model = model_over(engine)

    await model.__del__()  # as a replica does when its last call has ended

    assert engine.closed


def test_a_model_that_is_forgotten_closes_nothing_by_itself():
    # On the class, Python would call it too, and leave a coroutine that nobody awaits.
    model_over(FakeEngine())
    assert not hasattr(Model, "__del__")


async def test_calls_to_one_model_overlap():
    gate = asyncio.Event()
    engine = FakeEngine(gate=gate)
    model = model_over(engine)

    calls = [asyncio.create_task(model.answer(ITEMS)) for _ in range(3)]
    while engine.runs < len(calls):
        await asyncio.sleep(0)
    gate.set()

    assert len(await asyncio.gather(*calls)) == 3
