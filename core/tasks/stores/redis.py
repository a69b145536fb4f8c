"""Tasks on a server that speaks Redis, or in a cluster of them.

All keys of tasks carry one hash tag, so that a script may touch them together on a cluster as well; so do the
keys of one series of rows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisClusterException, RedisError

from core.errors import StoreUnavailable, TaskConflict
from core.tasks.stores.base import KEEP_TOMBSTONES_S, Changes, Entry
from core.tasks.stores.rows import Numbered, Series
from core.waiting import within

T = TypeVar("T")

DEADLINE_S: Final = 5.0  # tasks are written rarely, and nobody's decision waits for it
SEPARATOR: Final = "\n"  # in no id, which is printable, and in no tenant

# KEYS: versions, values, times, objects by task, changes, revision, prefix of objects and of who names them.
# ARGV: field, expected version or -1, now, 1 with a value, value, seconds to keep what nobody names, digests.
PUT: Final = """
local version = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0)
if tonumber(ARGV[2]) >= 0 and tonumber(ARGV[2]) ~= version then return {0, version} end
for old in string.gmatch(redis.call('HGET', KEYS[4], ARGV[1]) or '', '[^,]+') do
  redis.call('SREM', KEYS[7] .. 'named:' .. old, ARGV[1])
  if redis.call('SCARD', KEYS[7] .. 'named:' .. old) == 0 then
    redis.call('EXPIRE', KEYS[7] .. 'object:' .. old, ARGV[6])
  end
end
local digests = {}
for i = 7, #ARGV do
  digests[#digests + 1] = ARGV[i]
  redis.call('SADD', KEYS[7] .. 'named:' .. ARGV[i], ARGV[1])
  redis.call('PERSIST', KEYS[7] .. 'object:' .. ARGV[i])
end
redis.call('HSET', KEYS[1], ARGV[1], version + 1)
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[4], ARGV[1], table.concat(digests, ','))
redis.call('HDEL', KEYS[2], ARGV[1])
if ARGV[4] == '1' then redis.call('HSET', KEYS[2], ARGV[1], ARGV[5]) end
redis.call('ZADD', KEYS[5], redis.call('INCR', KEYS[6]), ARGV[1])
return {1, version + 1}
"""
# KEYS as above; ARGV: field.
GET: Final = """
local of = function(key) return redis.call('HGET', key, ARGV[1]) or false end
return {of(KEYS[1]), of(KEYS[2]), of(KEYS[3])}
"""
# KEYS as above; ARGV: known revision.
READ: Final = """
local newest = tonumber(redis.call('GET', KEYS[6]) or 0)
local known = tonumber(ARGV[1])
if known > newest then known = 0 end
local found = {newest, known}
for _, field in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '(' .. known, '+inf')) do
  found[#found + 1] = {field, redis.call('HGET', KEYS[1], field), redis.call('HGET', KEYS[2], field) or false,
    redis.call('HGET', KEYS[3], field)}
end
return found
"""
# KEYS as above; ARGV: field.
FORGET: Final = """
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
return redis.call('ZREM', KEYS[5], ARGV[1])
"""
# KEYS of a series: values by id, ids by number, the newest number.
# ARGV: 1 to replace what is there, most rows, then id and value of each.
ADD_ROWS: Final = """
local new = 0
for i = 3, #ARGV, 2 do
  local is_new = redis.call('HEXISTS', KEYS[1], ARGV[i]) == 0
  if is_new then new = new + 1 end
  if is_new or ARGV[1] == '1' then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    redis.call('ZADD', KEYS[2], redis.call('INCR', KEYS[3]), ARGV[i])
  end
end
local beyond = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[2])
if beyond > 0 then
  for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, beyond - 1)) do redis.call('HDEL', KEYS[1], id) end
  redis.call('ZREMRANGEBYRANK', KEYS[2], 0, beyond - 1)
end
return new
"""
# KEYS as above; ARGV: number after which, limit.
READ_ROWS: Final = """
local found = {}
local ids = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for i = 1, #ids, 2 do
  found[#found + 1] = {ids[i + 1], ids[i], redis.call('HGET', KEYS[1], ids[i])}
end
return found
"""
# KEYS as above; ARGV: ids.
ERASE_ROWS: Final = """
local gone = 0
for _, id in ipairs(ARGV) do
  redis.call('HDEL', KEYS[1], id)
  gone = gone + redis.call('ZREM', KEYS[2], id)
end
return gone
"""
# KEYS as above.
CLEAR_ROWS: Final = """
local gone = redis.call('ZCARD', KEYS[2])
redis.call('DEL', KEYS[1], KEYS[2])
return gone
"""
ROWS_AT_ONCE: Final = 500  # in one call of a script, during which the server does nothing else


def open_redis(url: str) -> "RedisTaskStore":
    """The task store on the server, or in the cluster, that a URL names; its keys begin with `?prefix=`."""
    parts = urlsplit(url)
    prefix = dict(parse_qsl(parts.query)).get("prefix", "precedent:")
    scheme = parts.scheme.removesuffix("+cluster").replace("redis+unix", "unix")
    plain = parts._replace(scheme=scheme, query="").geturl()
    if parts.scheme.endswith("+cluster"):
        # The client disconnects every connection, busy ones too, when the layout changes: one call at a time.
        return RedisTaskStore(lambda: RedisCluster.from_url(plain, protocol=2), prefix, at_once=1)
    return RedisTaskStore(lambda: Redis.from_url(plain, protocol=2), prefix)


class RedisTaskStore:
    """A `TaskStore` on a server.

    Args:
        connect: makes the client; called once, when it is first needed.
        prefix: with which the keys begin.
        at_once: how many calls may be under way.
    """

    def __init__(self, connect: Callable[[], Any], prefix: str, at_once: int = 64) -> None:
        self._connect = connect
        self._turns = asyncio.Semaphore(at_once)
        self._made: Any = None
        self._rows_prefix = f"{prefix}rows:"
        self._prefix = f"{prefix}{{tasks}}:"
        names = ("versions", "values", "times", "objects", "changes", "revision", "")
        self._keys = [self._prefix + name for name in names]

    async def revision(self) -> int:
        """The number of the newest write."""
        return int(await self._ask("revision", lambda db: db.get(self._keys[5])) or 0)

    async def read(self, known: int) -> Changes:
        """Every task written after revision `known`."""
        newest, since, *rows = await self._run("read", READ, known)
        entries = tuple(_entry(*row) for row in rows)
        return Changes(int(newest), entries, since == 0)

    async def get(self, tenant: str, task_id: str) -> Entry | None:
        """One task."""
        field = _field(tenant, task_id)
        version, value, at = await self._run("get", GET, field)
        return None if version is None else _entry(field.encode(), version, value, at)

    async def put(
        self,
        tenant: str,
        task_id: str,
        value: bytes | None,
        expected: int | None,
        now: float,
        objects: Sequence[str] = (),
    ) -> int:
        """Write a record, or a tombstone, and return its version."""
        written, version = await self._run(
            "put",
            PUT,
            _field(tenant, task_id),
            -1 if expected is None else expected,
            repr(now),
            0 if value is None else 1,
            value or b"",
            int(KEEP_TOMBSTONES_S),
            *objects,
        )
        if not written:
            raise TaskConflict(task_id, int(version), expected or 0)
        return int(version)

    async def put_object(self, digest: str, data: bytes, now: float) -> None:
        """Keep an object."""
        key = f"{self._prefix}object:{digest}"
        named = f"{self._prefix}named:{digest}"
        if await self._ask("put_object", lambda db: db.exists(named)):
            await self._ask("put_object", lambda db: db.set(key, data))
        else:
            await self._ask("put_object", lambda db: db.set(key, data, ex=int(KEEP_TOMBSTONES_S)))

    async def get_object(self, digest: str) -> bytes | None:
        """An object."""
        found = await self._ask("get_object", lambda db: db.get(f"{self._prefix}object:{digest}"))
        return None if found is None else bytes(found)

    async def forget(self, before: float) -> int:
        """Drop tombstones from before an instant; unnamed objects expire by themselves."""
        times = await self._ask("forget", lambda db: db.hgetall(self._keys[2]))
        old = [field for field, at in times.items() if float(at) < before]
        return sum([int(await self._run("forget", FORGET, field)) for field in old])

    async def add_rows(self, series: Series, rows: Sequence[tuple[str, bytes]], max_rows: int) -> int:
        """Append rows whose ids are not there."""
        return await self._write_rows("add_rows", 0, series, rows, max_rows)

    async def replace_rows(self, series: Series, rows: Sequence[tuple[str, bytes]], max_rows: int) -> None:
        """Append rows, each in place of the one with its id."""
        await self._write_rows("replace_rows", 1, series, rows, max_rows)

    async def read_rows(self, series: Series, after: int, limit: int) -> list[Numbered]:
        """At most `limit` rows with a number above `after`."""
        found: list[Numbered] = []
        while len(found) < limit:
            least, most = found[-1].number if found else after, min(ROWS_AT_ONCE, limit - len(found))
            part = await self._on_rows("read_rows", READ_ROWS, series, least, most)
            found += [Numbered(int(number), row_id.decode(), value) for number, row_id, value in part]
            if len(part) < most:
                break
        return found

    async def known_rows(self, series: Series, ids: Sequence[str]) -> set[str]:
        """Those of some ids that have a row."""
        values, known = self._row_keys(series)[0], set[str]()
        for at in range(0, len(ids), ROWS_AT_ONCE):
            part = [*ids[at : at + ROWS_AT_ONCE]]
            found = await self._ask("known_rows", lambda db, part=part: db.hmget(values, part))  # type: ignore[misc]
            known.update(row_id for row_id, value in zip(part, found, strict=True) if value is not None)
        return known

    async def erase_rows(self, series: Series, ids: Sequence[str]) -> int:
        """Remove rows; return how many there were."""
        parts = [ids[at : at + ROWS_AT_ONCE] for at in range(0, len(ids), ROWS_AT_ONCE)]
        return sum([int(await self._on_rows("erase_rows", ERASE_ROWS, series, *part)) for part in parts])

    async def clear_rows(self, series: Series) -> int:
        """Remove all rows, and return how many there were."""
        return int(await self._on_rows("clear_rows", CLEAR_ROWS, series))

    async def count_rows(self, series: Series, after: int = 0) -> int:
        """How many rows there are with a number above `after`."""
        numbers = self._row_keys(series)[1]
        return int(await self._ask("count_rows", lambda db: db.zcount(numbers, f"({after}", "+inf")))

    async def close(self) -> None:
        """Close every connection."""
        if self._made is not None:
            await self._made.aclose()
            self._made = None

    async def _write_rows(
        self, operation: str, replaces: int, series: Series, rows: Sequence[tuple[str, bytes]], max_rows: int
    ) -> int:
        new = 0
        for at in range(0, len(rows), ROWS_AT_ONCE):
            plain = [part for row in rows[at : at + ROWS_AT_ONCE] for part in row]
            new += int(await self._on_rows(operation, ADD_ROWS, series, replaces, max_rows, *plain))
        return new

    async def _on_rows(self, operation: str, script: str, series: Series, *arguments: Any) -> Any:  # noqa: ANN401
        return await self._run(operation, script, *arguments, keys=self._row_keys(series))

    def _row_keys(self, series: Series) -> list[str]:
        # Each series has a hash tag of its own, so that a cluster divides them; a task's id may hold a brace.
        named = SEPARATOR.join((series.tenant, series.task, series.name))
        tag = blake2b(named.encode(), digest_size=12).hexdigest()
        return [f"{self._rows_prefix}{{{tag}}}:{part}" for part in ("values", "numbers", "newest")]

    async def _run(
        self,
        operation: str,
        script: str,
        *arguments: Any,  # noqa: ANN401
        keys: Sequence[str] | None = None,
    ) -> Any:  # noqa: ANN401
        touched = self._keys if keys is None else keys
        return await self._ask(operation, lambda db: db.eval(script, len(touched), *touched, *arguments))

    async def _ask(self, operation: str, call: Callable[[Any], Awaitable[T]]) -> T:
        try:
            if self._made is None:
                self._made = self._connect()
            async with within(DEADLINE_S), self._turns:
                return await call(self._made)
        except (RedisError, RedisClusterException, OSError, TimeoutError) as error:
            raise StoreUnavailable(operation, str(error) or type(error).__name__) from error


def _field(tenant: str, task_id: str) -> str:
    return f"{tenant}{SEPARATOR}{task_id}"


def _entry(field: bytes, version: bytes, value: bytes | None, at: bytes) -> Entry:
    tenant, _, task_id = field.decode().partition(SEPARATOR)
    return Entry(tenant, task_id, int(version), value or None, float(at))
