"""What the way from a client to a Router does to a request, and what it must not do."""

import contextlib
import http.client
import json
import os
import signal
import socket
import sys
from email.message import Message
from pathlib import Path

import pytest

from config.settings import LimitSettings
from deployments.processes import named

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.service

LIMIT = LimitSettings().max_body_bytes
PATH = "/v1/systemone"
HEALTH_CHECK = b"GET /-/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def body(state, padding=0):
    question = {"type": "noul", "instructions": "is it about money?"}
    request = {"model": "jev-latest", "state": state, "questions": {"q": question}}
    return json.dumps(request).encode() + b" " * padding


def test_a_request_is_answered_and_the_next_equal_one_is_a_replay(service):
    first, second = (service.post(PATH, body("a request and its twin")) for _ in range(2))

    assert (first[0], second[0]) == (200, 200)
    assert json.loads(second[1])["x_precedent"]["source"] == "replay"
    assert json.loads(first[1])["answers"] == json.loads(second[1])["answers"]


def test_a_body_as_large_as_the_limit_passes(service):
    text = body("as large as may be")

    status, _ = service.post(PATH, text + b" " * (LIMIT - len(text)))

    assert status == 200


def test_a_body_larger_than_the_limit_gets_a_status_of_ours_and_not_a_reset(service):
    text = body("too large")

    status, answer = service.post(PATH, text + b" " * (LIMIT - len(text) + 1))

    assert status == 413
    assert str(LIMIT) in json.loads(answer)["detail"]["message"]


def test_a_body_that_comes_in_pieces_is_waited_for_while_others_are_answered(service):
    text = body("in pieces", padding=100_000)
    slow = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    slow.putrequest("POST", PATH)
    slow.putheader("Content-Type", "application/json")
    slow.putheader("Content-Length", str(len(text)))
    slow.endheaders(text[:40])

    assert service.post(PATH, body("meanwhile"))[0] == 200

    slow.send(text[40:])
    assert slow.getresponse().status == 200
    slow.close()


def test_a_chunked_body_passes(service):
    text = body("in chunks")
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)

    connection.request(
        "POST",
        PATH,
        iter([text[:10], text[10:]]),
        {"Content-Type": "application/json"},
        encode_chunked=True,
    )

    assert connection.getresponse().status == 200
    connection.close()


def test_an_encoded_body_passes_untouched(service):
    status, _ = service.post(PATH, zstd.compress(body("encoded")), {"Content-Encoding": "zstd"})

    assert status == 200


def test_one_connection_carries_many_requests(service):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.connect()
    first_socket = connection.sock

    for _ in range(20):
        connection.request("POST", PATH, body("again"), {"Content-Type": "application/json"})
        connection.getresponse().read()

    assert connection.sock is first_socket
    connection.close()


@pytest.mark.parametrize(
    "header",
    [
        b"x-request-id: \xff\xfe",
        b"x-request-id: " + b"a" * 5_000,
        b"x-session-id: \xff",
        b"serve_multiplexed_model_id: \xff",
        b"x-request-timeout-seconds: \xff",
        b"x-request-timeout-seconds: 0.000001",
        b"x-request-timeout-seconds: inf",
        b"x-request-disconnect-disabled: \xff",
        b"traceparent: \xff",
    ],
    ids=lambda header: header[:40].decode("ascii", "replace"),
)
def test_a_header_that_serve_reads_cannot_break_or_steer_a_request(service, header):
    text = body(f"with {header!r}")
    ours = b"Host: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d" % len(text)
    request = b"POST /v1/systemone HTTP/1.1\r\n%b\r\n%b\r\n\r\n%b" % (ours, header, text)

    assert raw(service.port, request).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GE T / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_not_http_is_the_callers_fault(service, request_bytes):
    assert raw(service.port, request_bytes).startswith(b"HTTP/1.1 400 ")


@pytest.mark.skipif(sys.platform != "linux", reason="reads which process listens where from /proc")
def test_without_keys_http_is_for_this_machine_only(service):
    serving = named("haproxy", service.process.pid)
    serving += [*service.replicas("Router")]

    listening = {address for pid in serving for address in http_listeners(pid)}

    assert service.port in {port for _, port in listening}
    assert {host for host, _ in listening} == {"127.0.0.1"}


@pytest.mark.skipif(sys.platform != "linux", reason="finds replicas by /proc")
def test_while_a_router_dies_and_returns_whoever_gets_an_error_is_told_when_to_retry(service):
    (router,) = service.replicas("Router")
    os.kill(router, signal.SIGKILL)
    seen: list[tuple[int, Message, bytes]] = []

    while not seen or seen[-1][0] != 200 or router in service.replicas("Router"):
        # A connection that is opened while HAProxy changes over to its next process may be closed before it
        # is used; every client opens another.
        with contextlib.suppress(ConnectionError):
            seen.append(ask(service.port, body("who is there?")))

    for status, headers, answer in seen:
        assert status in (200, 503)
        assert json.loads(answer)
        assert status == 200 or headers["Retry-After"] == "1"


def ask(port, text):
    """Status, headers and body of the answer on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", PATH, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def raw(port, request):
    """Everything the server says to these bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def http_listeners(pid):
    """Addresses where this process listens and answers HTTP, over IPv4 and IPv6."""
    own = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.exists() or fd.is_symlink()}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            local, state, inode = line.split()[1], line.split()[3], line.split()[9]
            if state == "0A" and f"socket:[{inode}]" in own:
                host, port = local.split(":")
                address = (dotted(host), int(port, 16))
                if speaks_http(address[1]):
                    yield address


def dotted(host):
    """An address as /proc writes it, in the usual form."""
    if len(host) == 8:
        return socket.inet_ntoa(bytes.fromhex(host)[::-1])
    words = (bytes.fromhex(host[i : i + 8])[::-1] for i in range(0, 32, 8))
    return socket.inet_ntop(socket.AF_INET6, b"".join(words))


def speaks_http(port):
    try:
        return raw(port, HEALTH_CHECK).startswith(b"HTTP/1.1 ")
    except OSError:
        return False
