"""Every store, in one fixture: a new one joins the suite by one line."""

from pathlib import Path

import pytest

from core.cache.stores.memory import MemoryStore
from core.cache.stores.sqlite import SqliteStore

STORES = {
    "memory": lambda folder, **bound: MemoryStore(**bound),
    "sqlite": lambda folder, **bound: SqliteStore(folder / "decisions.sqlite", **bound),
}


@pytest.fixture(params=STORES, ids=str)
def open_one(request, tmp_path: Path):
    """A function that opens the store under test, bounded if asked."""
    return lambda **bound: STORES[request.param](tmp_path, **bound)


@pytest.fixture
async def store(open_one):
    one = open_one()
    yield one
    await one.close()
