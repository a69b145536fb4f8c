"""Bytes on a socket, through the real ingress: what no client library sends, and how connections are kept."""

import gzip
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import Message
from http.client import parse_headers
from typing import Any

import pytest

from tests.running import Service

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.service

BODY = json.dumps(
    {
        "model": "jev-latest",
        "state": "Bytes on a socket.",
        "questions": {"q": {"type": "noul", "instructions": "Is it about sockets?"}},
    }
).encode()
HEAD = b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


class Line:
    """One connection, written to and read from by hand."""

    def __init__(self, service: Service) -> None:
        self._socket = socket.create_connection(("127.0.0.1", service.port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def write(self, *parts: bytes) -> None:
        """Send each part in a packet of its own, as far as that can be asked for."""
        for part in parts:
            self._socket.sendall(part)

    def read(self) -> tuple[int, Message, bytes]:
        """Status, headers and body of the next response.

        Raises:
            EOFError: the connection ended first.
        """
        first = self.read_line()
        if not first:
            raise EOFError
        status = int(first.split()[1])
        headers = parse_headers(self._reader)
        return status, headers, self._reader.read(int(headers["Content-Length"]))

    def read_line(self) -> bytes:
        """The next line of a response."""
        return self._reader.readline()

    def close(self) -> None:
        """Hang up."""
        self._reader.close()
        self._socket.close()


@contextmanager
def line_to(service: Service) -> Iterator[Line]:
    line = Line(service)
    try:
        yield line
    finally:
        line.close()


@pytest.fixture
def line(service: Service) -> Iterator[Line]:
    with line_to(service) as line:
        yield line


def whole(body: bytes, *headers: bytes) -> bytes:
    return (
        HEAD
        + b"".join(header + b"\r\n" for header in headers)
        + b"Content-Length: %d\r\n\r\n" % len(body)
        + body
    )


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


def assert_alive(service: Service) -> None:
    with line_to(service) as another:
        another.write(whole(BODY))
        assert another.read()[0] == 200


def test_a_plain_request_is_answered(line):
    line.write(whole(BODY))

    status, headers, body = line.read()

    assert status == 200
    assert headers["content-type"] == "application/json"
    assert headers["x-typesafe-request-id"]
    assert json.loads(body)["answers"]["q"]["type"] == "noul"


def test_a_request_in_many_small_packets_is_answered(line):
    line.write(*(bytes([byte]) for byte in whole(BODY)))

    assert line.read()[0] == 200


@pytest.mark.parametrize(
    "cuts", [[BODY], [BODY[:1], BODY[1:]], [BODY[i : i + 7] for i in range(0, len(BODY), 7)]]
)
def test_a_chunked_body_is_read(line, cuts):
    line.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", chunked(*cuts))

    assert line.read()[0] == 200


@pytest.mark.parametrize(("encoding", "pack"), [(b"zstd", zstd.compress), (b"gzip", gzip.compress)])
def test_a_compressed_chunked_body_is_read(line, encoding, pack):
    packed = pack(BODY)
    head = HEAD + b"Content-Encoding: " + encoding + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    line.write(head, chunked(packed[:9], packed[9:]))

    assert line.read()[0] == 200


def test_a_client_that_waits_to_be_told_to_go_on_is_told(line):
    line.write(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY))

    assert line.read_line() == b"HTTP/1.1 100 Continue\r\n"
    assert line.read_line() == b"\r\n"
    line.write(BODY)
    assert line.read()[0] == 200


def test_one_connection_carries_many_requests_good_and_bad(line):
    statuses = []
    for raw in (whole(BODY), whole(b"{"), whole(BODY), whole(b"x", b"Content-Encoding: zstd"), whole(BODY)):
        line.write(raw)
        statuses.append(line.read()[0])

    assert statuses == [200, 422, 200, 415, 200]


def test_requests_sent_at_once_are_answered_in_their_order(service):
    # The ingress is reloaded when replicas come and go, and then ends connections between two responses.
    for _ in range(3):
        seen: list[int] = []
        with line_to(service) as line, suppress(EOFError):
            line.write(whole(BODY) + whole(b"{") + whole(BODY))
            seen.extend(line.read()[0] for _ in range(3))
        assert seen == [200, 422, 200][: len(seen)]
        if len(seen) == 3:
            return
    raise AssertionError("three connections in turn ended early")


def test_a_connection_stays_usable_after_a_method_that_is_refused(line):
    line.write(b"GET /v1/systemone HTTP/1.1\r\nHost: x\r\n\r\n")
    status, headers, _ = line.read()
    assert (status, headers["allow"]) == (405, "POST")

    line.write(whole(BODY))

    assert line.read()[0] == 200


BAD: dict[str, tuple[bytes, tuple[bytes, ...]]] = {
    "nothing": (b"", ()),
    "not JSON": (b"not json", ()),
    "NaN": (b'{"state":{"x":NaN},"questions":{"q":{"type":"noul","instructions":"ok?"}}}', ()),
    "overflow": (b'{"model":"jev-latest","state":{"x":1e999}}', ()),
    "lone surrogate": (BODY.replace(b"Bytes", b"\\ud800"), ()),
    "not UTF-8": (BODY.replace(b"Bytes", b"\xff"), ()),
    "member twice": (BODY[:-1] + b',"state":"again"}', ()),
    "deep": (b'{"model":"jev-latest","state":' + b"[" * 20_000 + b"]" * 20_000 + b"}", ()),
    "very deep": (b"[" * 300_000, ()),
    "long integer": (b'{"model":"jev-latest","state":[' + b"9" * 5_000 + b"]}", ()),
    "too large": (b"x" * (2 * 1024 * 1024 + 1), ()),
    "bomb": (zstd.compress(b" " * 100_000_000), (b"Content-Encoding: zstd",)),
    "empty frames": (zstd.compress(b"") * 100_000, (b"Content-Encoding: zstd",)),
    "truncated gzip": (gzip.compress(BODY)[:-6], (b"Content-Encoding: gzip",)),
    "unknown encoding": (BODY, (b"Content-Encoding: br",)),
    "two encodings": (BODY, (b"Content-Encoding: gzip, zstd",)),
}


@pytest.mark.parametrize(("body", "headers"), BAD.values(), ids=BAD)
def test_a_bad_body_is_refused_in_json_and_the_service_goes_on(service, line, body, headers):
    line.write(whole(body, *headers))

    status, found, answer = line.read()

    assert 400 <= status < 500
    assert found["content-type"] == "application/json"
    assert found["x-typesafe-request-id"]
    assert json.loads(answer)["detail"]
    assert_alive(service)


def test_a_form_is_refused_and_says_what_is_taken(line):
    head = b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    line.write(head + b"Content-Length: 3\r\n\r\na=b")

    status, headers, _ = line.read()

    assert (status, headers["accept-post"]) == (415, "application/json")


@pytest.mark.parametrize("sent", [b"", BODY[:10]])
def test_a_client_that_hangs_up_midway_harms_nobody(service, sent):
    for _ in range(5):
        with line_to(service) as leaver:
            leaver.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + sent)

    assert_alive(service)


def test_a_client_that_hangs_up_before_the_answer_leaves_its_decision_behind(service):
    left: dict[str, Any] = json.loads(BODY) | {"state": "Nobody waits for this one."}
    raw = json.dumps(left).encode()
    with line_to(service) as leaver:
        leaver.write(whole(raw))

    sources = []
    for _ in range(2):
        with line_to(service) as late:
            late.write(whole(raw))
            sources.append(json.loads(late.read()[2])["x_precedent"]["source"])

    assert sources[1] == "replay"
    assert sources[0] in ("replay", "coalesced", "model")
