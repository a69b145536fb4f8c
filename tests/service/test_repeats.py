"""One request, one decision: through the real ingress, the real engine and the real store."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from examples.demo import REQUESTS, main
from tests.running import Service

pytestmark = pytest.mark.service

QUESTIONS = {
    "refund": {"type": "noul", "instructions": "Does the customer ask for a refund?"},
    "team": {"type": "choice", "criteria": {"Billing": "charges", "Technical": "bugs", "환불 요청": None}},
    "tone": {"type": "score", "criteria": ["calm", "annoyed", {"label": "furious"}]},
}


def body(state: Any, **more: Any) -> bytes:
    return json.dumps({"model": "jev-latest", "state": state, "questions": QUESTIONS} | more).encode()


def ask(service: Service, raw: bytes) -> tuple[bytes, dict[str, Any]]:
    """The part of the response that must repeat, byte for byte, and the whole, decoded."""
    status, response = service.post("/v1/systemone", raw)
    assert status == 200, response
    return response[: response.index(b',"usage":')], json.loads(response)


def test_a_replay_repeats_the_first_response_byte_for_byte(service):
    raw = body("I was charged twice and want one payment back.")

    first, again = ask(service, raw), ask(service, raw)

    assert first[0] == again[0]
    assert first[1]["x_precedent"]["source"] == "model"
    assert again[1]["x_precedent"]["source"] == "replay"
    assert first[1]["usage"]["input_tokens"] > 0
    assert again[1]["usage"] == {"input_tokens": 0, "output_tokens": 0}
    for mine in ("key", "margins"):
        assert first[1]["x_precedent"][mine] == again[1]["x_precedent"][mine]


def test_another_spelling_of_the_request_has_the_same_decision(service):
    value = json.loads(body("Spelled in two ways: é 🙂"))

    answers = {
        ask(service, json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode())[0]
        for ascii_only in (True, False)
        for indent in (None, 3)
    }

    assert len(answers) == 1


@pytest.mark.parametrize(
    "change", [{"x_nonce": 1}, {"state": "A state. "}, {"questions": dict(reversed(QUESTIONS.items()))}]
)
def test_another_request_has_a_decision_of_its_own(service, change):
    _, one = ask(service, body("A state."))
    _, other = ask(service, body(**({"state": "A state."} | change)))

    assert one["x_precedent"]["key"] != other["x_precedent"]["key"]


def test_a_burst_of_equal_requests_is_one_decision(service):
    raw = body("Sixty-four callers ask this in the same moment.")
    together = threading.Barrier(64)

    def one_of_many(_: int) -> tuple[bytes, dict[str, Any]]:
        together.wait()
        return ask(service, raw)

    with ThreadPoolExecutor(64) as pool:
        replies = list(pool.map(one_of_many, range(64)))

    assert len({answers for answers, _ in replies}) == 1
    sources = [reply["x_precedent"]["source"] for _, reply in replies]
    assert sources.count("model") == 1
    assert set(sources) <= {"model", "coalesced", "replay"}


def test_long_texts_are_answered_and_say_what_was_left_out(service):
    _, reply = ask(service, body("word " * 30_000))

    assert set(reply["x_precedent"]["truncated"]) == set(QUESTIONS)


@pytest.mark.parametrize("count", [1, 2, 26, 27, 255])
def test_no_option_is_dropped(service, count):
    options = {f"option {i}": None for i in range(count)}
    raw = json.dumps(
        {"model": "jev-latest", "state": "s", "questions": {"q": {"type": "choice", "criteria": options}}}
    ).encode()

    _, reply = ask(service, raw)

    assert list(reply["answers"]["q"]["probabilities"]) == list(options)


def test_the_demonstration_runs_and_shows_the_replay(service, capsys):
    assert main(["--url", service.url]) == 0

    count = len(list(REQUESTS.glob("*.json")))
    assert f"Second round: {count} replayed" in capsys.readouterr().out
