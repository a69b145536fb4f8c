"""A caller that leaves takes nothing with it: not the decision, and not those who wait for it."""

import json
import time
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.running import Host, Service

pytestmark = pytest.mark.service


@pytest.fixture
def slow_service(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Service:
    """A service whose engine takes half a second, and writes down each run."""
    runs = tmp_path_factory.getbasetemp() / "runs"
    return host.service(args={"engine": {"kind": "fake", "delay_s": 0.5, "runs_file": str(runs)}})


@pytest.fixture
def wait_for_a_run(slow_service: Service, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], None]:
    """Waits until the engine runs once more than when the test began: the call before it was there first."""
    runs = tmp_path_factory.getbasetemp() / "runs"
    known = _lines(runs)

    def wait() -> None:
        nonlocal known
        until = time.monotonic() + 10
        while _lines(runs) == known:
            assert time.monotonic() < until, "the engine did not run"
            time.sleep(0.01)
        known = _lines(runs)

    return wait


def _lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


class Asked:
    """A request under way."""

    def __init__(self, service: Service, state: str) -> None:
        question = {"type": "noul", "instructions": "Is it so?"}
        body = json.dumps({"model": "jev-latest", "state": state, "questions": {"q": question}})
        self._connection = HTTPConnection("127.0.0.1", service.port, timeout=30)
        self._connection.request("POST", "/v1/systemone", body, {"Content-Type": "application/json"})

    def answer(self) -> tuple[int, dict[str, Any]]:
        """Wait for the response: its status and its body."""
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    def close(self) -> None:
        """Leave."""
        self._connection.close()


def test_the_first_caller_leaves_and_those_who_joined_are_answered(slow_service, wait_for_a_run):
    for round_number in range(3):
        first = Asked(slow_service, f"round {round_number}")
        wait_for_a_run()
        with closing(Asked(slow_service, f"round {round_number}")) as second:
            first.close()

            status, body = second.answer()

        assert (status, body["x_precedent"]["source"]) == (200, "coalesced")


def test_every_caller_leaves_and_the_decision_is_there_for_the_next(slow_service):
    for _ in range(3):
        Asked(slow_service, "nobody waits").close()

    with closing(Asked(slow_service, "nobody waits")) as late:
        status, body = late.answer()

    assert status == 200
    assert body["x_precedent"]["source"] in ("coalesced", "replay")


@pytest.mark.parametrize("crowd", [1, 2, 3])
def test_some_of_many_leave_and_nobody_else_notices(slow_service, crowd):
    callers = [Asked(slow_service, f"crowd {crowd}") for _ in range(16)]
    for leaver in callers[::3]:
        leaver.close()

    stayed = [caller for i, caller in enumerate(callers) if i % 3]
    answers = [caller.answer() for caller in stayed]

    assert {status for status, _ in answers} == {200}
    assert len({json.dumps(body["answers"]) for _, body in answers}) == 1
    for caller in stayed:
        caller.close()
