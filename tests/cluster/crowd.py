"""Many clients at once, each with a connection of its own."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

QUESTION = "q"
PREFIX_CHARS = 16  # of a request id: the same for all that one Router answers, and for no other's


def request_body(state: str, question: str = QUESTION) -> bytes:
    """A request for a choice of three."""
    asked = {"type": "choice", "instructions": "Which is it?", "criteria": {"a": "A", "b": "B", "c": "C"}}
    return json.dumps({"model": "jev-latest", "state": state, "questions": {question: asked}}).encode()


@dataclass(frozen=True)
class Reply:
    """What a client got."""

    status: int
    headers: dict[str, str]
    body: bytes
    sent_again: bool = False  # the connection broke, and the client asked once more

    @cached_property
    def members(self) -> dict[str, Any]:
        """The members of the body."""
        members: dict[str, Any] = json.loads(self.body)
        return members

    @property
    def decision(self) -> str:
        """The body without what belongs to the call."""
        return json.dumps({k: v for k, v in self.members.items() if k not in ("usage", "x_precedent")})

    @property
    def source(self) -> str:
        """Where the answer came from."""
        return str(self.members["x_precedent"]["source"])

    @property
    def key(self) -> str:
        """The decision's key."""
        return str(self.members["x_precedent"]["key"])

    @property
    def router(self) -> str:
        """Which Router answered."""
        return self.headers["x-typesafe-request-id"][:PREFIX_CHARS]


class Client:
    """One connection, opened by the first request unless it was before."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connect(self) -> None:
        """Open the connection."""
        self._streams = await asyncio.open_connection("127.0.0.1", self._port)

    async def post(self, body: bytes) -> Reply:
        """Ask for a decision; once more where the connection breaks, which is a client's to do."""
        try:
            return await self._send("POST", "/v1/systemone", body)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.leave()
            return replace(await self._send("POST", "/v1/systemone", body), sent_again=True)

    async def get(self, path: str) -> Reply:
        """Read a page."""
        return await self._send("GET", path, b"")

    def leave(self) -> None:
        """Close the connection, whatever is under way."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _send(self, method: str, path: str, body: bytes) -> Reply:
        if self._streams is None:
            await self.connect()
        assert self._streams is not None
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        return Reply(int(first.split()[1]), headers, await reader.readexactly(int(headers["content-length"])))


async def read(port: int, path: str) -> Reply:
    """One page on a connection of its own."""
    client = Client(port)
    try:
        return await client.get(path)
    finally:
        client.leave()


async def ask(port: int, body: bytes, within_s: float) -> Reply:
    """One request on a connection of its own, which is closed after `within_s`, answered or not.

    Raises:
        TimeoutError: it was not answered.
    """
    client = Client(port)
    try:
        async with asyncio.timeout(within_s):
            return await client.post(body)
    finally:
        client.leave()


async def ask_all(port: int, bodies: Iterable[bytes], within_s: float) -> list[Reply]:
    """All requests at once; the replies in order.

    Raises:
        TimeoutError: a request was not answered within `within_s`: it hangs.
    """
    return await asyncio.gather(*(ask(port, body, within_s) for body in bodies))


async def ask_or_leave(port: int, body: bytes, patience_s: float) -> Reply | None:
    """One request whose client leaves after so long; None when it did."""
    try:
        return await ask(port, body, patience_s)
    except TimeoutError:
        return None
