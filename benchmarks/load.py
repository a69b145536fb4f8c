"""Send one request over and over on connections that stay open, and count.

Each connection sends its next request when the last answer is whole: the server is kept exactly `connections`
deep. An answer costs this client a search and a write, a small share of what it costs any server. Runs as a
process of its own: `python -m benchmarks.load PORT PATH BODY_FILE CONNECTIONS SECONDS`.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import uvloop

OVERTIME_S = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """What one run saw."""

    answers: int
    seconds: float
    failures: int  # answers with a status other than 200

    @property
    def per_second(self) -> float:
        """Answers a second."""
        return self.answers / self.seconds


def send(port: int, path: str, body: bytes, connections: int, seconds: float) -> Load:
    """Load a server from another process.

    Raises:
        RuntimeError: an answer that was not 200: its numbers would mean nothing.
    """
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(body)
        command = [sys.executable, "-m", "benchmarks.load"]
        arguments = [str(port), path, file.name, str(connections), str(seconds)]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=True, timeout=seconds + OVERTIME_S
        )
    load = Load(**json.loads(done.stdout))
    if load.failures:
        raise RuntimeError(f"{load.failures} of {load.answers} answers of {path} were not 200")
    return load


class _Connection(asyncio.Protocol):
    """One connection that asks again as soon as it was answered."""

    def __init__(self, request: bytes, stop_at: float) -> None:
        self._request = request
        self._stop_at = stop_at
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._whole = 0  # bytes of the answer under way; 0 until its headers are there
        self.answers = self.failures = 0
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by behaviour only
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received = data if not self._received else self._received + data
        if not self._whole:
            self._whole = _length(self._received)
        if not self._whole or len(self._received) < self._whole:
            return
        self.answers += 1
        self.failures += self._received[9:12] != b"200"
        self._received, self._whole = b"", 0
        if self._loop.time() < self._stop_at:
            self._transport.write(self._request)
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.failures += exc is not None
        if not self.closed.done():
            self.closed.set_result(None)


def _length(received: bytes) -> int:
    """Bytes of a whole answer, headers included; 0 while its headers are incomplete."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return 0
    head = received[:end].lower()
    start = head.index(b"content-length:") + len(b"content-length:")
    return end + 4 + int(head[start:].split(b"\r\n", 1)[0])


async def _run(port: int, path: str, body: bytes, connections: int, seconds: float) -> Load:
    loop = asyncio.get_running_loop()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    started = loop.time()
    opened = [
        (
            await loop.create_connection(
                lambda: _Connection(head.encode() + body, started + seconds), "127.0.0.1", port
            )
        )
        for _ in range(connections)
    ]
    protocols = [protocol for _, protocol in opened]
    await asyncio.gather(*(protocol.closed for protocol in protocols))
    answers, failures = sum(p.answers for p in protocols), sum(p.failures for p in protocols)
    return Load(answers, loop.time() - started, failures)


if __name__ == "__main__":
    _port, _path, _file, _connections, _seconds = sys.argv[1:]
    _load = uvloop.run(_run(int(_port), _path, Path(_file).read_bytes(), int(_connections), float(_seconds)))
    print(json.dumps(asdict(_load)))
