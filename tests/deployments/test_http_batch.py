"""`POST /v1/systemone/batch`: every item gets what it would have got alone."""

import json

import pytest

from core.engines.fake import FakeEngine
from tests.deployments.asgi import call
from tests.deployments.serving import Serving

PATH = "/v1/systemone/batch"
QUESTIONS = {"refund": {"type": "noul", "instructions": "Is a refund due?"}}


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def app(engine):
    return Serving(engine=engine).app()


async def batch(app, **members):
    return await call(app, json.dumps({"model": "jev-latest", **members}).encode(), path=PATH)


async def test_results_come_in_the_order_of_the_states(app):
    states = ["one", "two", "three"]
    reply = await batch(app, states=states, questions=QUESTIONS)

    alone = [
        await call(app, json.dumps({"model": "jev-latest", "state": s, "questions": QUESTIONS}).encode())
        for s in states
    ]
    assert reply.status == 200
    assert [r["answers"] for r in reply.json["results"]] == [a.json["answers"] for a in alone]
    assert [a.json["x_precedent"]["source"] for a in alone] == ["replay"] * 3


async def test_repeats_in_a_batch_are_computed_once(app, engine):
    reply = await batch(app, states=["one", "two", "one", "one"], questions=QUESTIONS)

    sources = [r["x_precedent"]["source"] for r in reply.json["results"]]
    assert engine.runs == 2
    assert sources == ["model", "model", "coalesced", "coalesced"]
    assert reply.json["total_usage"] == {"input_tokens": 2, "output_tokens": 0}


async def test_what_was_decided_before_is_replayed(app, engine):
    await batch(app, states=["one"], questions=QUESTIONS)

    reply = await batch(app, states=["two", "one"], questions=QUESTIONS)

    assert [r["x_precedent"]["source"] for r in reply.json["results"]] == ["model", "replay"]
    assert engine.runs == 2


async def test_whole_requests_may_ask_different_questions(app):
    requests = [
        {"model": "jev-latest", "state": "a", "questions": QUESTIONS},
        {"model": "fake", "state": "a", "questions": {"x": {"type": "score", "criteria": ["low", "high"]}}},
    ]

    reply = await call(app, json.dumps({"requests": requests}).encode(), path=PATH)

    assert [list(r["answers"]) for r in reply.json["results"]] == [["refund"], ["x"]]


async def test_a_wrong_item_is_refused_alone_with_the_status_and_detail_it_would_have_had(app):
    states = ["good", None, "also good"]
    reply = await batch(app, states=states, questions=QUESTIONS)

    alone = await call(
        app, json.dumps({"model": "jev-latest", "state": None, "questions": QUESTIONS}).encode()
    )
    good, wrong, also_good = reply.json["results"]
    assert "answers" in good
    assert "answers" in also_good
    assert wrong == {"error": {"status": 422, **alone.json}}


async def test_a_lone_surrogate_is_refused_alone(app):
    body = json.dumps({"model": "jev-latest", "states": ["a", "\ud800"], "questions": QUESTIONS}).encode()

    good, wrong = (await call(app, body, path=PATH)).json["results"]

    assert "answers" in good
    assert wrong["error"]["status"] == 422


async def test_an_item_whose_engine_fails_leaves_the_others_their_answers():
    engine = FakeEngine(fails=lambda item: ValueError("no") if item.state == "bad" else None)

    reply = await batch(Serving(engine=engine).app(), states=["good", "bad"], questions=QUESTIONS)

    good, bad = reply.json["results"]
    assert "answers" in good
    assert bad["error"]["status"] == 503


async def test_a_batch_that_is_none_is_refused_whole(app):
    assert (await batch(app, states=[], questions=QUESTIONS)).status == 422
    assert (await call(app, b"{", path=PATH)).status == 422
    assert (await call(app, b"", method="GET", path=PATH)).header(b"allow") == b"POST"
