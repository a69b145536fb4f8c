"""Places that keep bytes by key."""

from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from core.cache.stores.base import Store
from core.cache.stores.memory import MemoryStore
from core.cache.stores.sqlite import SqliteStore
from core.errors import SettingsError

DEFAULT_PREFIX: Final = "precedent:"
REPLY_S: Final = 0.2  # how long a connection may owe a reply before it is given up
PIPELINES: Final = 4  # under way at once

_CLIENT_SCHEMES: Final = {
    "redis": "redis",
    "rediss": "rediss",
    "redis+unix": "unix",
    "redis+cluster": "redis",
    "rediss+cluster": "rediss",
}


def open_store(url: str, max_entries: int, reply_s: float = REPLY_S) -> Store:
    """The store that a URL names. Nothing is opened or connected to before it is used.

        memory://                                  in this process
        sqlite:///decisions.sqlite             a file beside the working directory
        sqlite:////var/lib/precedent.sqlite    a file by its absolute path
        redis://user:password@host:6379/0      a server; rediss:// with TLS, redis+unix:///path by a socket
        redis+cluster://host:6379              a cluster, by any member; rediss+cluster:// with TLS

    A server's URL may end in `?prefix=name:`, with which its keys begin (`precedent:` by default).

    Args:
        url: as above.
        max_entries: above it the least recently stored value leaves; a server has its `maxmemory` instead.
        reply_s: after this long without a reply, a connection to a server is given up.

    Raises:
        SettingsError: a URL of another kind, with an unknown option, or without a path or host.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise SettingsError("store", f"is no URL: {error}") from error
    if parts.scheme in _CLIENT_SCHEMES:
        return _open_redis(parts, reply_s)
    if url == "memory://":
        return MemoryStore(max_entries)
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return SqliteStore(Path(url.removeprefix("sqlite:///")), max_entries)
    schemes = ", ".join(f"{scheme}://" for scheme in _CLIENT_SCHEMES)
    raise SettingsError(
        "store", f"is {_without_secrets(parts)}; use memory://, sqlite:///path or one of {schemes}"
    )


def _open_redis(parts: SplitResult, reply_s: float) -> Store:
    # Imported here, since a Router without a shared store should not pay for it.
    from core.cache.stores.redis import RedisStore  # noqa: PLC0415
    from core.cache.stores.redis_wire import ClusterWire, ServerWire, Wire  # noqa: PLC0415

    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = options.pop("prefix", DEFAULT_PREFIX)
    if options:
        raise SettingsError("store", f"has the unknown option {', '.join(options)}; only prefix is known")
    scheme = _CLIENT_SCHEMES[parts.scheme]
    url = parts._replace(scheme=scheme, query="").geturl()
    wire: Wire
    try:
        if not parts.hostname and scheme != "unix":
            raise ValueError("there is no host")
        if parts.scheme.endswith("+cluster"):
            wire = ClusterWire(url, reply_s, PIPELINES)
        else:
            wire = ServerWire(url, reply_s)
    except ValueError as error:
        raise SettingsError("store", f"is {_without_secrets(parts)}: {error}") from error
    return RedisStore(wire, prefix.encode(), PIPELINES)


def _without_secrets(parts: SplitResult) -> str:
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
