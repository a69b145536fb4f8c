"""Pipelines to a server that speaks Redis: many commands out, as many replies back, one round trip.

A connection whose replies were not all read is closed and never used again: whoever came next would read the
reply to somebody else's command.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from hiredis import pack_command
from redis.asyncio import Connection, ConnectionPool, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ServerGone
from redis.exceptions import ReadOnlyError, RedisClusterException, RedisError, ResponseError
from redis.exceptions import TimeoutError as ServerSlow

from core.waiting import within

CONNECT_S: Final = 2.0  # nobody waits that long: callers leave, and the next ones find the connection

Command = tuple[bytes | str | int, ...]
Reply = Any  # bytes, int, list or None, or the `ResponseError` with which the server refused this one command


class Wire(Protocol):
    """A way to a server, or to several that divide the keys among them."""

    divided: bool  # True where one command may not name keys of several servers

    async def send(self, commands: Sequence[Command]) -> list[Reply]:
        """Send all commands and return their replies, in order.

        Raises:
            RedisError, RedisClusterException, OSError, TimeoutError: there are no replies.
        """
        ...

    async def count(self) -> int:
        """How many keys the servers hold."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class ServerWire:
    """Connections to one server.

    Args:
        url: `redis://`, `rediss://` or `unix://`, without options of our own.
        reply_s: after this long without all replies, a connection is closed.
    """

    divided = False

    def __init__(self, url: str, reply_s: float) -> None:
        self._connections: ConnectionPool = ConnectionPool.from_url(
            url, protocol=2, socket_timeout=None, socket_connect_timeout=CONNECT_S
        )
        self._reply_s = reply_s
        self._idle: list[Connection] = []

    async def send(self, commands: Sequence[Command]) -> list[Reply]:
        """Send all commands and return their replies; once more when the connection had died while idle."""
        if self._idle:
            try:
                return await self._exchange(self._idle.pop(), commands)
            except ServerGone:
                await self._drop_idle()  # the others have most likely died with it
        fresh = self._connections.make_connection()  # type: ignore[no-untyped-call]
        return await self._exchange(fresh, commands)

    async def count(self) -> int:
        """How many keys the server's database holds."""
        return int((await self.send([("DBSIZE",)]))[0])

    async def close(self) -> None:
        """Close every idle connection."""
        await self._drop_idle()

    async def _exchange(self, connection: Connection, commands: Sequence[Command]) -> list[Reply]:
        try:
            if not connection.is_connected:
                async with within(CONNECT_S):
                    await connection.connect()  # type: ignore[no-untyped-call]
            async with within(self._reply_s):
                packed = b"".join(pack_command(command) for command in commands)  # type: ignore[arg-type]
                await connection.send_packed_command(packed, check_health=False)
                replies = [await _reply(connection) for _ in commands]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        if ReadOnlyError in map(type, replies):  # no longer the primary: its name may lead to another by now
            await connection.disconnect(nowait=True)
        else:
            self._idle.append(connection)
        return replies

    async def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)


async def _reply(connection: Connection) -> Reply:
    try:
        return await connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return error


class ClusterWire:
    """Connections to the servers of a cluster, which tell where each key lives.

    Args:
        url: `redis://` or `rediss://` of any member.
        reply_s: after this long without all replies, the connections are closed and the layout is read again.
        connections: at most so many to each member.
    """

    divided = True

    def __init__(self, url: str, reply_s: float, connections: int) -> None:
        # Trying again is left to the caller, who has a deadline; the client's own tries would outlast it.
        self._client: RedisCluster = RedisCluster.from_url(
            url,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            max_connections=connections,
            socket_timeout=reply_s,
            socket_connect_timeout=CONNECT_S,
        )
        self._reply_s = reply_s

    async def send(self, commands: Sequence[Command]) -> list[Reply]:
        """Send each command to the member that has its key; all members work at the same time."""
        pipeline = self._client.pipeline()
        for command in commands:
            pipeline.execute_command(*command, **({"get": True} if command[0] == "SET" else {}))
        try:
            with _cut_is_gone():
                async with within(CONNECT_S + self._reply_s):
                    replies: list[Reply] = await pipeline.execute(raise_on_error=False)
                lost = next((reply for reply in replies if _is_lost(reply)), None)
                if lost is not None:
                    raise TimeoutError(str(lost)) if isinstance(lost, ServerSlow) else lost
        except BaseException:
            await self._client.aclose()  # the next call asks the cluster for its layout
            raise
        return replies

    async def count(self) -> int:
        """How many keys all members hold."""
        with _cut_is_gone():
            return int(await self._client.dbsize(target_nodes=RedisCluster.PRIMARIES))

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()


def _is_lost(reply: Reply) -> bool:
    return isinstance(reply, Exception) and (
        not isinstance(reply, ResponseError) or isinstance(reply, ServerGone | ServerSlow)
    )


@contextmanager
def _cut_is_gone() -> Iterator[None]:
    """Say so where another call closed the client under this one, whose connection has no stream now."""
    try:
        yield
    except AttributeError as error:
        raise ServerGone("another call closed the connections of this one") from error


Lost = (RedisError, RedisClusterException, OSError, TimeoutError)  # what `send` raises
