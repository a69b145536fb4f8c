"""Two Routers that nobody coordinates, over one server, with engines that never agree."""

import asyncio
import random
import time

import pytest

from core.cache.cache import DecisionCache
from core.cache.guard import Guarding
from core.cache.stores.redis import RedisStore
from core.cache.stores.redis_wire import ServerWire
from core.contract.request import Contract
from core.contract.strict_json import encode
from core.engines.fake import FakeEngine
from core.identity import Identity
from core.outcome import Source
from core.routing import Decider
from tests.core.cache.servers import Server, valkey

ME = Identity("acme", "app")
RACES = 10_000
AT_ONCE = 100
PATIENCE_S = 60.0


class Contrary(FakeEngine):
    """Takes its time, by turns of the loop, and answers by its seed; engines of any seed pass for one."""

    def __init__(self, seed):
        super().__init__(seed)
        self.fingerprint = "one and the same"
        self._turns = random.Random(seed)

    async def answer(self, items):
        for _ in range(self._turns.randrange(4)):
            await asyncio.sleep(0)
        return await super().answer(items)


@pytest.fixture(scope="module")
def server():
    server = Server(valkey())
    yield server
    server.close()


@pytest.fixture
async def routers(server):
    """Two deciders with caches of their own, which wait for the server however busy this machine is."""
    caches = [
        DecisionCache(
            RedisStore(ServerWire(server.url, PATIENCE_S)), guarding=Guarding(deadline_s=PATIENCE_S)
        )
        for _ in range(2)
    ]
    yield [
        Decider(Contract(("m",)), Contrary(seed), cache, time.time)
        for seed, cache in enumerate(caches, start=1)
    ]
    for cache in caches:
        await cache.close()


def body(number):
    question = {"type": "choice", "criteria": dict.fromkeys("abcdef")}
    return encode({"model": "m", "state": f"case {number}", "questions": {"q": question}})


async def race(routers, number):
    return await asyncio.gather(*(router.decide(body(number), router.lane(ME)) for router in routers))


async def test_both_callers_get_the_decision_that_was_stored_first(routers):
    first = await routers[0].decide(body("one"), routers[0].lane(ME))
    second = await routers[1].decide(body("one"), routers[1].lane(ME))

    assert (first.source, second.source) == (Source.MODEL, Source.REPLAY)
    assert first.decision.answers == second.decision.answers


async def test_in_ten_thousand_races_every_pair_gets_one_answer(routers):
    conflicts = 0
    for start in range(0, RACES, AT_ONCE):
        pairs = await asyncio.gather(*(race(routers, start + n) for n in range(AT_ONCE)))
        assert all(one.decision.answers == other.decision.answers for one, other in pairs)
        assert all(Source.MODEL in {one.source, other.source} for one, other in pairs)

    engines = [router._engine for router in routers]
    conflicts = sum(engine.runs for engine in engines) - RACES
    assert conflicts > 0  # or nothing was raced for
