"""Call an ASGI application without a server in between, and see exactly what it sends."""

import asyncio
import json
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from deployments.http import AsgiApp

JSON_HEADERS = ((b"content-type", b"application/json"),)


@dataclass(frozen=True, slots=True)
class Reply:
    """A response."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded; it must be JSON by its header and hold no NaN or Infinity."""
        assert self.header(b"content-type").split(b";")[0] == b"application/json"
        return json.loads(self.body, parse_constant=_refuse)

    def header(self, name: bytes) -> bytes:
        """The one header of this name."""
        (value,) = (value for given, value in self.headers if given == name)
        return value


async def call(app: AsgiApp, body: bytes | Iterable[bytes] = b"", **how: Any) -> Reply:
    """Send one request, described by `exchange`, and return what came back."""
    reply = await exchange(app, body, **how)
    assert reply is not None, "the application sent nothing"
    return reply


async def exchange(
    app: AsgiApp,
    body: bytes | Iterable[bytes] = b"",
    *,
    method: str = "POST",
    path: str = "/v1/systemone",
    query: bytes = b"",
    headers: Iterable[tuple[bytes, bytes]] = JSON_HEADERS,
    then: str = "end",
) -> Reply | None:
    """Send one request; None when the application sent nothing.

    Args:
        app: the application.
        body: whole, or in chunks.
        method: of the request.
        path: without the query.
        query: of the request's target, without its question mark.
        headers: with names in lower case.
        then: what the client does after the last chunk: `end` the body, `leave`, or `hang`.
    """
    chunks = [body] if isinstance(body, bytes) else list(body)
    sent: list[MutableMapping[str, Any]] = []
    taken = 0

    async def receive() -> MutableMapping[str, Any]:
        nonlocal taken
        if taken < len(chunks):
            taken += 1
            more = taken < len(chunks) or then != "end"
            return {"type": "http.request", "body": chunks[taken - 1], "more_body": more}
        if then != "leave":
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "root_path": "",
        "headers": list(headers),
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }
    await app(scope, receive, send)
    return _reply(sent) if sent else None


def _reply(sent: list[MutableMapping[str, Any]]) -> Reply:
    start, *parts = sent
    assert start["type"] == "http.response.start"
    assert [part["type"] for part in parts] == ["http.response.body"] * len(parts)
    assert not parts[-1].get("more_body", False)
    reply = Reply(start["status"], tuple(start["headers"]), b"".join(part.get("body", b"") for part in parts))
    assert reply.header(b"content-length") == b"%d" % len(reply.body)
    return reply


def _refuse(word: str) -> None:
    raise AssertionError(f"a response holds {word}, which is not JSON")
