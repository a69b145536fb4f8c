"""Every store, in one fixture: a new one joins the suite by one line."""

from pathlib import Path

import pytest

from core.cache.stores import open_store
from core.cache.stores.memory import MemoryStore
from core.cache.stores.sqlite import SqliteStore

STORES = {
    "memory": lambda request, folder, **bound: MemoryStore(**bound),
    "sqlite": lambda request, folder, **bound: SqliteStore(folder / "decisions.sqlite", **bound),
    "valkey": lambda request, folder, **bound: on_servers(request, "a_valkey", "redis", bound),
    "redis 6.2": lambda request, folder, **bound: on_servers(request, "a_redis_6", "redis", bound),
    "cluster": lambda request, folder, **bound: on_servers(request, "a_cluster", "redis+cluster", bound),
}


def on_servers(request, fixture, scheme, bound):
    if bound:
        pytest.skip("a server bounds its own memory, by maxmemory")
    servers = request.getfixturevalue(fixture)
    for server in servers:
        with server.client() as client:
            client.flushall()
    return open_store(f"{scheme}://127.0.0.1:{servers[0].port}", max_entries=1)


@pytest.fixture(params=STORES, ids=str)
def open_one(request, tmp_path: Path):
    """A function that opens the store under test, empty, and bounded if asked."""
    return lambda **bound: STORES[request.param](request, tmp_path, **bound)


@pytest.fixture
async def store(open_one):
    one = open_one()
    yield one
    await one.close()
