"""Every task store, in one fixture: a new one joins the suite by one line."""

import pytest

from core.tasks.stores import open_task_store
from tests.core.cache.conftest import a_cluster, a_redis_6, a_valkey  # noqa: F401  fixtures

STORES = {
    "memory": lambda request, folder: open_task_store("memory://"),
    "sqlite": lambda request, folder: open_task_store(f"sqlite:///{folder / 'decisions.db'}"),
    "valkey": lambda request, folder: on_servers(request, "a_valkey", "redis"),
    "redis 6.2": lambda request, folder: on_servers(request, "a_redis_6", "redis"),
    "cluster": lambda request, folder: on_servers(request, "a_cluster", "redis+cluster"),
}


def on_servers(request, fixture, scheme):
    servers = request.getfixturevalue(fixture)
    for server in servers:
        with server.client() as client:
            client.flushall()
    return open_task_store(f"{scheme}://127.0.0.1:{servers[0].port}")


@pytest.fixture(params=STORES, ids=str)
async def store(request, tmp_path):
    one = STORES[request.param](request, tmp_path)
    yield one
    await one.close()
