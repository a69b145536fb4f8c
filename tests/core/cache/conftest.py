"""What the tests of the cache share."""

from pathlib import Path

import pytest

from core.cache.cache import DecisionCache
from core.cache.stores.memory import MemoryStore
from core.cache.stores.sqlite import SqliteStore
from tests.core.cache.faulty import FaultyStore
from tests.core.cache.proxy import FaultProxy
from tests.core.cache.servers import Server, cluster, redis_6, valkey


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path: Path):
    """A store that several caches may share."""
    one = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "decisions.sqlite")
    yield one
    await one.close()


@pytest.fixture(scope="session")
def a_valkey():
    server = Server(valkey())
    yield [server]
    server.close()


@pytest.fixture(scope="session")
def a_redis_6():
    server = Server(redis_6())
    yield [server]
    server.close()


@pytest.fixture(scope="session")
def a_cluster():
    with cluster() as servers:
        yield servers


@pytest.fixture
def server(a_valkey):
    """A server of its own, empty."""
    (one,) = a_valkey
    with one.client() as client:
        client.flushall()
    return one


@pytest.fixture
async def proxy(server):
    """Something between the caches and the server."""
    async with FaultProxy(server.port).running() as one:
        yield one


@pytest.fixture
def faulty() -> FaultyStore:
    """A store that fails as told."""
    return FaultyStore()


@pytest.fixture
def warnings() -> list[str]:
    """What the cache warned of."""
    return []


@pytest.fixture
async def cache(store) -> DecisionCache:
    return DecisionCache(store)
