"""Places that keep tasks."""

from pathlib import Path
from urllib.parse import urlsplit

from core.errors import SettingsError
from core.tasks.stores.base import TaskStore
from core.tasks.stores.memory import MemoryTaskStore
from core.tasks.stores.sqlite import SqliteTaskStore

_SERVERS = ("redis", "rediss", "redis+unix", "redis+cluster", "rediss+cluster")


def open_task_store(url: str) -> TaskStore:
    """The task store that a URL names, in the forms of `core.cache.stores.open_store`.

    Of `sqlite:///decisions.db` the tasks are kept in `decisions.tasks.db` beside it. Nothing is opened before
    it is used.

    Raises:
        SettingsError: a URL of another kind.
    """
    scheme = urlsplit(url).scheme
    if url == "memory://":
        return MemoryTaskStore()
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        return SqliteTaskStore(path.with_name(f"{path.stem}.tasks{path.suffix}"))
    if scheme in _SERVERS:
        # Imported here, since a Router without a server should not pay for it.
        from core.tasks.stores.redis import open_redis  # noqa: PLC0415

        return open_redis(url)
    kinds = ", ".join(("memory", "sqlite", *_SERVERS))
    raise SettingsError("tasks.store", f"is of kind {scheme!r}; use one of {kinds}")
