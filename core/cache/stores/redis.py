"""Values on a server that speaks Redis (Redis 6.2 or later, Valkey), alone or as a cluster.

Commands issued in one turn of the event loop travel as one pipeline. A value is preceded by its expiry, so
that the caller's clock decides what has expired and not the server's; the server is told only for how long to
keep it, which also holds when its clock is wrong. The bound on entries is the server's `maxmemory`, and what
leaves first its `maxmemory-policy`: `allkeys-lru` is right where the server keeps nothing else.
"""

import struct
from collections.abc import Collection, Sequence
from hashlib import sha1
from types import NoneType
from typing import Final

from redis.exceptions import NoScriptError, ResponseError

from core.cache.stores.base import FenceTable, new_founding
from core.cache.stores.redis_wire import Command, Lost, Reply, Wire
from core.cache.together import Together
from core.errors import StoreUnavailable

ATTEMPTS: Final = 3  # where a value expires or changes between two looks at it
MIXED_UP: Final = "the reply belongs to another command"

_EXPIRY: Final = struct.Struct(">Q")  # milliseconds since 1970
_NEVER: Final = 2**63 - 1


class Script:
    """A program for the server, sent once and then named by its digest."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.digest = sha1(source.encode(), usedforsecurity=False).hexdigest()


REPLACE: Final = Script("""
    local there = redis.call('GET', KEYS[1])
    if not there or string.sub(there, 9) ~= ARGV[1] then return 0 end
    if #there >= 8 and struct.unpack('>I8', there) <= tonumber(ARGV[2]) then return 0 end
    if ARGV[4] == '' then redis.call('SET', KEYS[1], ARGV[3])
    else redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4]) end
    return 1
""")
REPLACE_EXPIRED: Final = Script("""
    if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    if ARGV[3] == '' then redis.call('SET', KEYS[1], ARGV[2])
    else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
    return 1
""")
DISCARD: Final = Script("""
    local there = redis.call('GET', KEYS[1])
    if not there or string.sub(there, 9) ~= ARGV[1] then return 0 end
    return redis.call('DEL', KEYS[1])
""")
ADD_FENCE: Final = Script("""
    local epoch = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0') + 1
    epoch = math.max(epoch, tonumber(ARGV[2]))
    for i = 4, #ARGV do redis.call('HDEL', KEYS[1], 's' .. ARGV[i]) end
    redis.call('HSETNX', KEYS[1], 'founding', ARGV[3])
    redis.call('HSET', KEYS[1], 'epoch', epoch, 's' .. ARGV[1], epoch)
    return epoch
""")


class RedisStore:
    """A `Store` that many machines share.

    Args:
        wire: the way to the server or the cluster.
        prefix: what every key begins with; two apps with different ones do not see each other.
        pipelines: how many may be under way; commands that come meanwhile go with the next.
    """

    def __init__(self, wire: Wire, prefix: bytes = b"precedent:", pipelines: int = 4) -> None:
        self._wire = wire
        self._prefix = prefix
        self._fences = prefix + b"fences"
        self._pipelines = Together(self._send, at_once=pipelines)
        self._adds_in_one = True  # until the server shows that it is older than Redis 7.0

    async def get_many(self, keys: Sequence[bytes], now: float) -> dict[bytes, bytes]:
        """Return the values that are there, by key."""
        if not keys:
            return {}
        names = [self._prefix + key for key in keys]
        if self._wire.divided:
            framed = await self._ask("get", *(("GET", name) for name in names))
        else:
            (framed,) = await self._ask("get", ("MGET", *names))
        instant = _EXPIRY.pack(_milliseconds(now))
        return {
            key: value[_EXPIRY.size :]
            for key, value in zip(keys, _values("get", framed, len(keys)), strict=True)
            if value is not None and not _has_expired(value, instant)
        }

    async def add(self, key: bytes, value: bytes, expires_at: float | None, now: float) -> bytes:
        """Store `value` unless a live one is there, and return the one that survives."""
        name, framed, lifetime = self._prefix + key, _frame(value, expires_at), _lifetime(expires_at, now)
        for _ in range(ATTEMPTS):
            there = await self._set_if_absent(name, framed, lifetime)
            if there is None:
                return value
            if not _has_expired(there, _EXPIRY.pack(_milliseconds(now))):
                return there[_EXPIRY.size :]
            if await self._run("add", REPLACE_EXPIRED, name, there, framed, lifetime or b""):
                return value
        raise StoreUnavailable("add", "the value kept changing")

    async def replace(self, key: bytes, old: bytes, new: bytes, expires_at: float | None, now: float) -> bool:
        """Put `new` where exactly `old` stands."""
        framed, lifetime = _frame(new, expires_at), _lifetime(expires_at, now) or b""
        name = self._prefix + key
        return bool(await self._run("replace", REPLACE, name, old, _milliseconds(now), framed, lifetime))

    async def discard(self, key: bytes, old: bytes) -> bool:
        """Remove the value if it is exactly `old`."""
        return bool(await self._run("discard", DISCARD, self._prefix + key, old))

    async def prune(self, now: float) -> int:
        """Nothing to do: the server removes what has expired."""
        return 0

    async def count(self, now: float) -> int:
        """How many keys the server holds, those of others included: counting ours would scan them all."""
        try:
            return await self._wire.count()
        except Lost as error:
            raise StoreUnavailable("count", _describe(error)) from error

    async def read_fences(self, known: FenceTable) -> FenceTable | None:
        """The purges so far, or None when nothing is new."""
        (mark,) = await self._ask("read_fences", ("HMGET", self._fences, "founding", "epoch"))
        founding, epoch = _values("read_fences", mark, 2)
        if known.is_as(FenceTable(founding or b"", int(epoch or 0))):
            return None
        (members,) = await self._ask("read_fences", ("HGETALL", self._fences))
        if not isinstance(members, dict):  # as pairs or as a mapping, depending on the wire
            pairs = _values("read_fences", members)
            members = dict(zip(pairs[::2], pairs[1::2], strict=True))
        by_scope = {name[1:]: int(at) for name, at in members.items() if name.startswith(b"s")}
        return FenceTable(members.get(b"founding", b""), int(members.get(b"epoch", 0)), by_scope)

    async def add_fence(self, scope: bytes, at_least: int, dropped: Collection[bytes]) -> int:
        """Begin the next epoch and fence `scope` with it."""
        founding = new_founding()
        return await self._run("add_fence", ADD_FENCE, self._fences, scope, at_least, founding, *dropped)

    async def close(self) -> None:
        """Let the pipelines under way end, and close the connections."""
        await self._pipelines.drain()
        await self._wire.close()

    async def _set_if_absent(self, name: bytes, framed: bytes, lifetime: int | None) -> bytes | None:
        """Set a value where none is; return the one that is there otherwise."""
        expiry: Command = () if lifetime is None else ("PX", lifetime)
        if self._adds_in_one:
            reply = await self._ask_one("add", ("SET", name, framed, "NX", "GET", *expiry))
            if not isinstance(reply, ResponseError):
                return _values("add", [reply], 1)[0]  # nil means that it was set
            if "syntax" not in str(reply):
                raise StoreUnavailable("add", str(reply))
            self._adds_in_one = False
        for _ in range(ATTEMPTS):
            was_set, there = await self._ask("add", ("SET", name, framed, "NX", *expiry), ("GET", name))
            if was_set:
                return None
            if there is not None:
                return _values("add", [there], 1)[0]
        raise StoreUnavailable("add", "the value came and went")

    async def _run(self, operation: str, script: Script, name: bytes, *arguments: bytes | int) -> int:
        reply = await self._ask_one(operation, ("EVALSHA", script.digest, 1, name, *arguments))
        if isinstance(reply, NoScriptError):  # a server that restarted, or never saw it
            reply = await self._ask_one(operation, ("EVAL", script.source, 1, name, *arguments))
        if isinstance(reply, ResponseError):
            raise StoreUnavailable(operation, str(reply))
        if not isinstance(reply, int):
            raise StoreUnavailable(operation, MIXED_UP)
        return reply

    async def _ask(self, operation: str, *commands: Command) -> list[Reply]:
        replies = await self._pipelines.call(commands)
        refusal = next((reply for reply in replies if isinstance(reply, Exception)), None)
        if refusal is not None:
            raise StoreUnavailable(operation, _describe(refusal)) from refusal
        return replies

    async def _ask_one(self, operation: str, command: Command) -> Reply:
        (reply,) = await self._pipelines.call((command,))
        if isinstance(reply, Exception) and not isinstance(reply, ResponseError):
            raise StoreUnavailable(operation, _describe(reply)) from reply
        return reply

    async def _send(self, calls: Sequence[tuple[Command, ...]]) -> Sequence[list[Reply]]:
        try:
            replies = iter(await self._wire.send([command for commands in calls for command in commands]))
        except Lost as error:
            return [[error] * len(commands) for commands in calls]
        return [[next(replies) for _ in commands] for commands in calls]


def _values(operation: str, reply: Reply, count: int | None = None) -> list[bytes | None]:
    """Check that a reply is a list of values, so that no other command's reply is taken for one."""
    if (
        not isinstance(reply, list)
        or not set(map(type, reply)) <= {bytes, NoneType}
        or len(reply) != (len(reply) if count is None else count)
    ):
        raise StoreUnavailable(operation, MIXED_UP)
    return reply


def _frame(value: bytes, expires_at: float | None) -> bytes:
    return _EXPIRY.pack(_NEVER if expires_at is None else _milliseconds(expires_at)) + value


def _has_expired(framed: bytes, instant: bytes) -> bool:
    # Big-endian numbers compare as their bytes do. What is too short for a frame is somebody else's: it is
    # handed on, and recognised above.
    return framed[: _EXPIRY.size] <= instant and len(framed) >= _EXPIRY.size


def _lifetime(expires_at: float | None, now: float) -> int | None:
    return None if expires_at is None else max(1, _milliseconds(expires_at) - _milliseconds(now))


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
