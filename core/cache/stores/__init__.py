"""Places that keep bytes by key."""

from pathlib import Path

from core.cache.stores.base import Store
from core.cache.stores.memory import MemoryStore
from core.cache.stores.sqlite import SqliteStore
from core.errors import SettingsError


def open_store(url: str, max_entries: int) -> Store:
    """The store that a URL names.

    Args:
        url: `memory://`, or `sqlite:///path` with a relative path, `sqlite:////path` with an absolute one.
        max_entries: above it the least recently stored value leaves.

    Raises:
        SettingsError: a URL of another kind.
    """
    if url == "memory://":
        return MemoryStore(max_entries)
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return SqliteStore(Path(url.removeprefix("sqlite:///")), max_entries)
    raise SettingsError("store", f"is {url!r}; use memory:// or sqlite:///path")
