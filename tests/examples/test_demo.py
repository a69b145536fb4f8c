"""The demonstration: its requests are valid and varied, its table is readable, its errors say what to do."""

import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from core.contract.questions import Choice, Noul, Score
from core.contract.request import Contract, parse
from examples.demo import REQUESTS, columns, in_words, main, table
from tests.running import free_port

FILES = sorted(REQUESTS.glob("*.json"))


def test_there_are_a_dozen_requests_or_more_with_every_kind_of_question():
    requests = [parse(path.read_bytes(), Contract(("jev-latest",))) for path in FILES]

    assert len(requests) >= 12
    assert {type(q) for request in requests for q in request.questions.values()} == {Noul, Choice, Score}
    assert any(request.state.startswith("{") for request in requests)
    assert any(request.state.startswith("[") for request in requests)
    assert any(len(request.state) > 1_000 for request in requests)
    assert any(q.size > 26 for request in requests for q in request.questions.values())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"type": "noul", "noul": 0.5}, "yes, P(yes) 0.50"),
        ({"type": "noul", "noul": 0.049}, "no, P(yes) 0.05"),
        ({"type": "choice", "choice": "a", "probabilities": {"b": 0.2, "a": 0.8}}, "a, 0.80"),
        ({"type": "score", "score": 1.6, "legend": {"0": "low", "1": "mid", "2": "high"}}, "1.60 of 2: high"),
        ({"type": "score", "score": 0.0, "legend": {"0": {"label": "低"}}}, '0.00 of 0: {"label": "低"}'),
    ],
)
def test_an_answer_is_said_in_words(answer, words):
    assert in_words(answer) == words


def test_the_columns_of_the_table_line_up_also_with_wide_letters():
    lines = [("a", "담당 부서", "환불 요청, 0.50", "", "", "", "", "", "x"), ("b" * 99, *"1234567", "x")]

    printed = table(lines).splitlines()

    assert len({columns(line[: line.rindex("x")]) for line in printed[2:]}) == 1
    assert "…" in printed[3]
    assert columns(printed[3].split("…")[0]) == 43


class _Server(BaseHTTPRequestHandler):
    status = HTTPStatus.OK
    seen: set[bytes]
    fickle = False

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        source = "replay" if body in self.seen else "model"
        self.seen.add(body)
        number = 0.25 if self.fickle and source == "replay" else 0.75
        answers = {name: {"type": "noul", "noul": number} for name in json.loads(body)["questions"]}
        about = {"source": source, "margins": dict.fromkeys(answers, 0.5)}
        reply = json.dumps({"model": "m", "answers": answers, "x_precedent": about}).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def serve():
    """Starts a stand-in for the service; `serve(fickle=True)` answers otherwise the second time."""
    servers = []

    def start(**traits: Any) -> str:
        server = HTTPServer(("127.0.0.1", 0), type("Server", (_Server,), {"seen": set(), **traits}))
        Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_the_second_round_is_shown_to_be_replayed(serve, capsys):
    assert main(["--url", serve()]) == 0

    printed = capsys.readouterr().out
    assert f"{len(FILES)} requests" in printed
    assert "First round : 0 replayed" in printed
    assert f"Second round: {len(FILES)} replayed" in printed
    assert f"Answered the same both times: {len(FILES)} of {len(FILES)}." in printed
    assert "yes, P(yes) 0.75" in printed


def test_an_answer_that_changed_is_a_failure(serve, capsys):
    assert main(["--url", serve(fickle=True)]) == 1

    assert f"Answered the same both times: 0 of {len(FILES)}." in capsys.readouterr().out


def test_an_error_of_the_service_is_shown(serve, capsys):
    assert main(["--url", serve(status=503)]) == 2

    assert "answered 503" in capsys.readouterr().err


def test_when_the_service_is_not_up_it_says_how_to_start_it(capsys):
    assert main(["--url", f"http://127.0.0.1:{free_port()}"]) == 2

    assert "start one with `make serve`, or name another with --url" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://x:port", ""])
def test_an_address_that_is_none_is_refused_with_an_example(url, capsys):
    assert main(["--url", url]) == 2

    assert "one looks like http://127.0.0.1:8000" in capsys.readouterr().err
