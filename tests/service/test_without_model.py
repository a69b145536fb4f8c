"""What the service still does when no Model replica answers."""

import json
import os
import signal

import pytest

pytestmark = pytest.mark.service

PATH = "/v1/systemone"


def body(state):
    question = {"type": "noul", "instructions": "Is a refund due?"}
    return json.dumps({"model": "jev-latest", "state": state, "questions": {"refund": question}}).encode()


@pytest.fixture
def quick(host):
    """A service that gives up on a computation soon."""
    return host.service(args={"deadline_s": 1.5, "coalescer": {"max_wait_s": 1.0}})


@pytest.fixture
def stop_model(quick):
    """Freezes every Model replica, and lets them go on afterwards."""
    frozen = []

    def stop():
        frozen.extend(quick.replicas("Model"))
        assert frozen
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)

    yield stop
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)


def test_a_stored_decision_is_replayed_and_a_new_one_is_refused_for_now(quick, stop_model):
    first_status, first = quick.post(PATH, body("decided before"))
    stop_model()

    again_status, again = quick.post(PATH, body("decided before"))
    new_status, new = quick.post(PATH, body("never seen"))

    assert (first_status, again_status) == (200, 200)
    assert json.loads(again)["answers"] == json.loads(first)["answers"]
    assert json.loads(again)["x_precedent"]["source"] == "replay"
    assert new_status == 503
    assert json.loads(new)["detail"]["error_type"] == "overloaded_error"


def test_once_the_model_is_back_what_was_refused_is_decided(quick, stop_model):
    status, answer = quick.post(PATH, body("asked again later"))

    assert status == 200
    assert json.loads(answer)["x_precedent"]["source"] == "model"
