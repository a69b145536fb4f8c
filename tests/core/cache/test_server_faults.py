"""A shared server that freezes, breaks, lies, restarts or fills up, under two hundred requests in flight.

No request fails and no answer is another's; afterwards the caches come back by themselves and agree.
"""

import asyncio
import contextlib

import pytest

from core.cache.alarm import Alarm
from core.cache.cache import DecisionCache, Limits
from core.cache.decision import Decision
from core.cache.guard import Guarding, StoreState
from core.cache.stores import open_store
from tests.core.cache.faulty import ACME, NOW, key, noul

REQUESTS = 200
KNOWN = 100  # of these, decided before the fault


@contextlib.asynccontextmanager
async def frozen(proxy, server):
    proxy.freeze()
    yield
    proxy.thaw()


@contextlib.asynccontextmanager
async def reset(proxy, server):
    async def keep_breaking():
        while True:
            proxy.reset()
            await asyncio.sleep(0.001)

    breaking = asyncio.create_task(keep_breaking())
    yield
    breaking.cancel()


@contextlib.asynccontextmanager
async def slow(proxy, server):
    proxy.delay_s = 2.0
    yield
    proxy.delay_s = 0.0
    proxy.reset()


@contextlib.asynccontextmanager
async def wrong_replies(proxy, server):
    proxy.shifted = True
    yield
    proxy.shifted = False
    proxy.reset()


@contextlib.asynccontextmanager
async def refusing(proxy, server):
    proxy.refusing = True
    proxy.reset()
    yield
    proxy.refusing = False


@contextlib.asynccontextmanager
async def restarted_empty(proxy, server):
    server.kill()
    server.start()
    yield


@contextlib.asynccontextmanager
async def down(proxy, server):
    server.kill()
    yield
    server.start()


@contextlib.asynccontextmanager
async def read_only(proxy, server):
    with server.client() as client:
        client.replicaof("127.0.0.1", 1)
        client.config_set("replica-serve-stale-data", "yes")
        yield
        client.replicaof("NO", "ONE")


@contextlib.asynccontextmanager
async def out_of_memory(proxy, server):
    with server.client() as client:
        client.config_set("maxmemory", 1)
        yield
        client.config_set("maxmemory", 0)


FAULTS = [frozen, reset, slow, wrong_replies, refusing, restarted_empty, down, read_only, out_of_memory]


class App:
    """One process of a fleet, whose engine answers unlike all others."""

    def __init__(self, url: str, opinion: float, warnings: list[str]) -> None:
        self.cache = DecisionCache(
            open_store(url, max_entries=1),
            limits=Limits(grace_s=1e9),
            guarding=Guarding(deadline_s=0.3, pause_s=1.0, max_pause_s=1.0),
            alarm=Alarm(warnings.append),
        )
        self.opinion = opinion

    async def decide(self, number: int, now: float) -> Decision:
        epoch = self.cache.epoch
        found = await self.cache.get(key(number), ACME, now)
        if found is None:
            added = await self.cache.add(noul(number, self.opinion, epoch=epoch), ACME, now)
            found = added.decision
        return found

    async def recover(self, now: float) -> float:
        """Maintain, as time goes by, until all is well; return the time."""
        for _ in range(100):
            now += 5.0
            await self.cache.maintain(now)
            await self.decide(10_000 + int(now), now)  # something to write
            stats = self.cache.stats()
            if (stats.reading, stats.writing, stats.unsettled) == (StoreState.CLOSED, StoreState.CLOSED, 0):
                return now
        raise AssertionError(f"still not well: {stats}")


@pytest.fixture
async def apps(proxy, warnings):
    both = [App(proxy.url, opinion, warnings) for opinion in (0.9, 0.2)]
    yield both
    proxy.thaw()
    for app in both:
        await app.cache.close()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.replace("_", " "))
async def test_no_request_fails_and_all_is_well_afterwards(fault, apps, proxy, server, warnings):
    known = {n: await apps[0].decide(n, NOW) for n in range(KNOWN)}
    await apps[1].cache.maintain(NOW)

    async with fault(proxy, server):
        answers = await asyncio.gather(*(app.decide(n, NOW) for n in range(REQUESTS) for app in apps))
    for n, (mine, yours) in enumerate(zip(answers[::2], answers[1::2], strict=True)):
        assert (mine.key, yours.key) == (key(n), key(n))
        assert mine.answers in (noul(n, 0.9).answers, noul(n, 0.2).answers)
        if n in known:
            assert mine == known[n]  # what is in memory does not depend on the server

    now = NOW
    for app in apps:
        now = await app.recover(now)
    for app in apps:
        await app.cache.maintain(now)
    for n in range(REQUESTS):
        one, other = [await app.decide(n, now) for app in apps]
        assert one.answers == other.answers
    assert len(warnings) < 60


async def test_a_server_that_is_only_slow_is_used(apps, proxy):
    proxy.delay_s = 0.02
    await apps[0].decide(1, NOW)

    found = await apps[1].decide(1, NOW)
    assert found.answers == noul(1, 0.9).answers
    assert apps[1].cache.stats().errors == 0


async def test_wrong_replies_are_told_as_an_alarm_and_never_replayed(apps, proxy, warnings):
    for n in range(20):
        await apps[0].decide(n, NOW)
    reader = apps[1].cache
    await reader.maintain(NOW)
    await reader.get(key(0), ACME, NOW)
    proxy.shifted = True

    for n in range(1, 20):
        found = await reader.get(key(n), ACME, NOW + 0.01 * n)
        assert found is None or found.key == key(n)
    assert reader.stats().oddities.foreign > 0
    assert any("of another key" in warning for warning in warnings)


async def test_one_caller_waits_for_a_frozen_server_at_most_once(apps, proxy):
    cache = apps[0].cache
    await cache.maintain(NOW)
    proxy.freeze()
    await apps[0].decide(1, NOW)
    for n in range(2, 50):
        await apps[0].decide(n, NOW + 0.5)

    assert cache.stats().timeouts == 1


async def test_both_callers_of_a_race_on_one_server_get_the_decision_stored_first(apps, proxy):
    for app in apps:
        await app.cache.maintain(NOW)
    conflicts = 0
    for n in range(2_000):
        one, other = await asyncio.gather(*(app.cache.add(noul(n, app.opinion), ACME, NOW) for app in apps))
        assert one.decision.answers == other.decision.answers
        conflicts += 1

    assert sum(app.cache.stats().tally.conflicts for app in apps) == conflicts
