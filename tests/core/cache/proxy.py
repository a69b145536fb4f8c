"""A TCP proxy that does to a connection what networks and servers do to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

LOCALHOST = "127.0.0.1"


class FaultProxy:
    """Passes bytes between clients and a server on this host.

    Attributes:
        passing: cleared, nothing gets through in either direction and connections stay open.
        delay_s: each reply is held back for so long.
        refusing: new connections are closed at once.
        shifted: each client gets, in place of a reply, the one before it.
        connections: how many were made.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._handlers: set[asyncio.Task[None]] = set()
        self.passing = asyncio.Event()
        self.passing.set()
        self.delay_s = 0.0
        self.refusing = False
        self.shifted = False
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://{LOCALHOST}:{self.port}"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FaultProxy"]:
        server = await asyncio.start_server(self._serve, LOCALHOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.passing.set()
            self.reset()
            if self._handlers:
                await asyncio.wait(self._handlers)
            await server.wait_closed()

    def freeze(self) -> None:
        """Let nothing through from now on, until `thaw`."""
        self.passing.clear()

    def thaw(self) -> None:
        self.passing.set()

    def reset(self) -> None:
        """Break every connection, without a goodbye."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.get_running_loop().create_task(self._connect(reader, writer))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refusing:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(LOCALHOST, self._target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._writers |= both
        try:
            await asyncio.gather(self._requests(reader, far_writer), self._replies(far_reader, writer))
        finally:
            self._writers -= both

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await self.passing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        before = b""
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self.passing.wait()
                writer.write(before if self.shifted and before else data)
                before = data
                await writer.drain()
        writer.close()
