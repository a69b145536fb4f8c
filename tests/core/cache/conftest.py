"""What the tests of the cache share."""

from pathlib import Path

import pytest

from core.cache.cache import DecisionCache
from core.cache.stores.memory import MemoryStore
from core.cache.stores.sqlite import SqliteStore
from tests.core.cache.faulty import FaultyStore


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path: Path):
    """A store that several caches may share."""
    one = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "decisions.sqlite")
    yield one
    await one.close()


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
