"""Everything here runs in virtual time: nothing sleeps, and a hang is an error at once."""

from collections.abc import AsyncIterator, Callable, Mapping

import pytest_asyncio

from tests.core.coalescing.fleet import Fleet
from tests.core.coalescing.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], VirtualTimeLoop]]:
    return {"virtual-time": VirtualTimeLoop}


@pytest_asyncio.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """Three Routers that share a shard, a store and an engine of 0.3 s."""
    fleet = Fleet()
    yield fleet
    await fleet.close()
